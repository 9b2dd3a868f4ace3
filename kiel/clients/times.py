"""Points in time as Kafka has them: whole milliseconds since 1970 (UTC)."""
import calendar
import datetime
import numbers
import time

from kiel.exc import ConfigurationError


def milliseconds(value, what="a timestamp"):
    """A datetime (naive means UTC) in milliseconds; a whole number is in milliseconds already.

    What was before 1970 counts as the beginning of 1970: no record is older, and Kafka takes negative numbers
    for something else.
    """
    if isinstance(value, datetime.datetime):
        return max(0, calendar.timegm(value.utctimetuple()) * 1000 + value.microsecond // 1000)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= 0:
        return int(value)
    raise ConfigurationError("%s has to be a datetime or milliseconds since 1970, not %r" % (what, value))


def ago(delta):
    """The time a timedelta before now, in milliseconds."""
    return max(0, int((time.time() - delta.total_seconds()) * 1000))
