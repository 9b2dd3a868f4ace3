"""Whether the application is here: it waits for a batch, and has none in its hands."""
from kiel.groups import events

# How often it is said again that it isn't, where calls end one after another.
SAY_AGAIN_SECONDS = 0.5


class Presence(object):
    """Tells the membership when the application comes and goes, with calls for several topics at once.

    While one coroutine waits for a batch another one may have a batch in its hands. So a rebalance waits until
    none is, but no longer than `drain_seconds`.

    :param member: the GroupMember
    :param is_waiting: whether any call is under way
    :param is_holding: whether any batch is in the application's hands
    """

    def __init__(self, loop, member, is_waiting, is_holding, drain_seconds):
        self._loop, self._member = loop, member
        self._is_waiting, self._is_holding, self._drain_seconds = is_waiting, is_holding, drain_seconds
        self._is_here = False
        self._taking = set()
        self._went_at = float("-inf")
        self._drain_timer, self._is_overdue = None, False

    def looks(self, key, takes):
        """A call looks for records, and is about to take some, or not."""
        if takes:
            self._taking.add(key)
            self._go()
        else:
            self._taking.discard(key)
            self.consider()

    def ended(self, key):
        """A call has ended, whatever with."""
        self._taking.discard(key)
        self._go(again=True)
        self.consider()

    def consider(self):
        """See whether the application is here now."""
        free = self._is_overdue or not (self._taking or self._is_holding())
        if free and not self._is_here and self._is_waiting():
            self._is_here = True
            self._member.want(events.ApplicationBack())

    def _go(self, again=False):
        now = self._loop.time()
        if self._is_here or (again and now - self._went_at >= SAY_AGAIN_SECONDS):
            self._is_here, self._went_at = False, now
            self._member.want(events.ApplicationTook())

    def membership_changed(self):
        """After each event of the membership: a rebalance may have begun to wait for the application."""
        waits = self._member.machine.state == "rebalance announced"
        if waits and self._drain_timer is None and not self._is_overdue:
            self._drain_timer = self._loop.call_later(self._drain_seconds, self._overdue)
        elif not waits:
            self.stop()

    def _overdue(self):
        self._drain_timer, self._is_overdue = None, True
        self.consider()

    def stop(self):
        self._is_overdue = False
        if self._drain_timer is not None:
            self._loop.remove_timeout(self._drain_timer)
            self._drain_timer = None
