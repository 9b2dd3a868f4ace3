import logging

import pytest

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
