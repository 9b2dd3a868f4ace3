import collections
import logging

import pytest

from tests.support import kafka as kafka_servers
from tests.support import needs

WATCHED = ("kiel", "tornado", "asyncio", "concurrent")


class LogBook(logging.Handler):
    """Keeps what is logged at WARNING and above, until a test says that it expected it."""

    def __init__(self):
        super(LogBook, self).__init__(logging.WARNING)
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def expect(self, text):
        """Take the records whose message contains `text` off the book; at least one must be there."""
        matching = [record for record in self.records if text in record.getMessage()]
        assert matching, "no log line has %r; there are: %r" % (text, self.lines())
        self.records = [record for record in self.records if record not in matching]
        return [record.getMessage() for record in matching]

    def allow(self, text):
        """Take the records whose message contains `text` off the book, if there are any."""
        self.records = [record for record in self.records if text not in record.getMessage()]

    def lines(self):
        return ["%s %s: %s" % (r.levelname, r.name, r.getMessage()) for r in self.records]


@pytest.fixture(autouse=True)
def logbook():
    """Any warning or error that a test doesn't expect (``logbook.expect("text")``) fails it."""
    book = LogBook()
    loggers = [logging.getLogger(name) for name in WATCHED]
    for logger in loggers:
        logger.addHandler(book)
    yield book
    for logger in loggers:
        logger.removeHandler(book)
    assert book.lines() == []


@pytest.fixture(scope="session")
def kafka():
    """One real broker (a KafkaServers), started once for all tests: use topic names of your own."""
    needs.kafka()
    with kafka_servers.KafkaServers() as servers:
        yield servers


@pytest.fixture(scope="module")
def three_brokers():
    needs.kafka()
    with kafka_servers.KafkaServers(brokers=3, config={"min.insync.replicas": 2}) as servers:
        yield servers


@pytest.fixture
def kafka_cluster(three_brokers):
    """Three real brokers with min.insync.replicas=2, a module's own; all are up as a test begins."""
    three_brokers.heal()
    return three_brokers


def pytest_collection_modifyitems(items):
    for item in items:
        if {"kafka", "three_brokers"} & set(item.fixturenames):
            item.add_marker(pytest.mark.kafka)
        if "kiel_cluster" in item.fixturenames:
            item.add_marker(pytest.mark.embedded)


def pytest_terminal_summary(terminalreporter):
    """Say last how many tests were skipped and why."""
    reasons = collections.Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line("%d skipped: %s" % (count, reason.replace("Skipped: ", "")))
