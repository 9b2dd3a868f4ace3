import datetime
import time

import pytest

from kiel.clients.times import ago, milliseconds
from kiel.exc import ConfigurationError

EPOCH = datetime.datetime(1970, 1, 1)


class East(datetime.tzinfo):
    """Two hours ahead of UTC."""

    def utcoffset(self, when):
        return datetime.timedelta(hours=2)

    def dst(self, when):
        return datetime.timedelta(0)


@pytest.mark.parametrize(
    "value, expected",
    [
        (EPOCH, 0),
        (datetime.datetime(2013, 1, 1, 5, 15, 0, 123456), 1357017300123),
        (datetime.datetime(2013, 1, 1, 7, 15, tzinfo=East()), 1357017300000),
        (datetime.datetime(2013, 1, 1, 1, 0, tzinfo=East()), 1356994800000),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), 0),
        (datetime.datetime(1900, 1, 1), 0),
        (0, 0),
        (1357017300123, 1357017300123),
    ],
)
def test_milliseconds(value, expected):
    assert milliseconds(value) == expected


@pytest.mark.parametrize("value", [None, "2013-01-01", -1, 1.5, True, datetime.date(2013, 1, 1), datetime.timedelta(1)])
def test_what_is_no_time(value):
    with pytest.raises(ConfigurationError, match="since_then has to be a datetime"):
        milliseconds(value, "since_then")


def test_ago():
    before = time.time() * 1000
    found = ago(datetime.timedelta(hours=1, milliseconds=5))
    after = time.time() * 1000
    assert before - 1 <= found + 3600005 <= after + 1


def test_longer_ago_than_1970():
    assert ago(datetime.timedelta(days=365000)) == 0
    assert ago(datetime.timedelta.max) == 0
