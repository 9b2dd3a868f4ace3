"""Which offsets a member of a group has to commit, and when: without sockets and clocks."""
from kiel.groups import verdict
from kiel.protocol import errors


class Commits(object):
    """What was acknowledged and isn't committed yet.

    Places are (topic, partition); an offset is that of the next record to read. Times are in seconds.

    :param interval: the least time from one commit to the next
    :param backoff: number of failures before (from 0) -> how long to wait before the next try

    ``pending`` is {place: offset} of what is to be committed next. What a broker has refused for good is in
    ``refused``: it is tried again along with whatever is pending next.
    """

    def __init__(self, interval, backoff):
        self.pending = {}
        self.refused = {}
        self._interval, self._backoff = interval, backoff
        self._committed = {}
        self._not_before = float("-inf")
        self._failures = 0
        self._told = {}

    def acknowledge(self, place, offset):
        if place in self.pending or self._committed.get(place) != offset:
            self.pending[place] = offset
            self.refused.pop(place, None)

    def confirm(self, offsets):
        """These, {place: offset}, were committed otherwise."""
        for place, offset in offsets.items():
            self._committed[place] = offset
            for each in (self.pending, self.refused):
                if each.get(place) == offset:
                    del each[place]

    def drop(self, places):
        """Forget partitions that aren't this member's any more."""
        for place in places:
            for each in (self.pending, self.refused, self._committed, self._told):
                each.pop(place, None)

    def pause(self, now):
        """How long to wait before the next commit (None: until there is something to commit)."""
        return max(0, self._not_before - now) if self.pending else None

    def take(self, now):
        """{place: offset} to be sent now; what becomes of it is to be given to `settle`."""
        taken = dict(self.refused)
        taken.update(self.pending)
        self.pending, self.refused = {}, {}
        for place in taken:
            self._committed.pop(place, None)
        self._not_before = now + self._interval
        return taken

    def settle(self, now, sent, results):
        """Take in what became of the offsets in `sent`: {place: None or the KielError}.

        Gives the errors that say something new, {place: error}: of what was refused for good.
        """
        news, put_back = {}, False
        for place, offset in sent.items():
            error = results[place]
            if error is None:
                self._committed[place] = offset
                self._told.pop(place, None)
            elif is_passing(error):
                put_back = True
                self.pending.setdefault(place, offset)
            elif place not in self.pending:
                self.refused[place] = offset
                if self._told.get(place) != str(error):
                    self._told[place], news[place] = str(error), error
        if put_back:
            self._not_before = max(self._not_before, now + self._backoff(self._failures))
        self._failures = self._failures + 1 if put_back else 0
        return news


def is_passing(error):
    """Whether a commit that failed so may succeed when it is tried again, as it is, by the same member."""
    return verdict.word(error) != "refused" and verdict.reaction(error) != errors.REFRESH_METADATA
