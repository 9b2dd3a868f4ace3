import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "_ext"))

import kiel  # noqa: E402

project = "kiel"
copyright = "kiel's authors"
version = release = kiel.__version__
extensions = ["sphinx.ext.autodoc", "transitions"]
html_theme = "alabaster"
exclude_patterns = ["_build"]
