"""What a test needs of the machine and may not find there."""
import os

import pytest

from tests.support import maven


def missing(what):
    """Skip the test that lacks `what`; where CI is set fail it: there everything has to be found."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def kafka(version=maven.KAFKA):
    """Skip or fail a test that needs a real Kafka where none can be started."""
    lacking = maven.lacking(version)
    if lacking:
        missing("a real Kafka can't be started: %s" % lacking)
