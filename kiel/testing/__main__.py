import sys

from kiel.testing.remote import main

sys.exit(main())
