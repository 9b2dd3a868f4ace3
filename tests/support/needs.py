"""What a test needs of the machine and may not find there."""
import os

import pytest


def missing(what):
    """Skip the test that lacks `what`; where CI is set fail it: there everything has to be found."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
