"""What waits to be produced: records in batches, a queue of batches a partition, and what each answer means.

Nothing here knows of a loop, a socket, a clock or chance: `now` (seconds) is handed in, and what has become
of records is given back as a list of Outcomes. What holds at any time:

- A partition has at most one batch in flight, so its order is kept whatever has to be sent again.
- A batch gets its sequence number when it is first sent, and keeps it (and its producer id) for as long as an
  earlier try may have been appended: the broker then knows it again (KIP-98). If the broker refused it, so
  that nothing was appended, the numbers go to whatever is sent next.
- A batch that fails for good with its outcome unknown would leave a gap in the sequence. The partition's next
  batch starts at 0 under a new producer id.
"""
import collections

import six

from kiel.exc import (
    BrokerConnectionError,
    BrokerError,
    DeadlineError,
    NoBrokersError,
    ProtocolError,
    RecordTooLargeError,
)
from kiel.protocol import errors, records
from kiel.protocol.primitives import Span

MAX_IN_FLIGHT = 5

NO_SEQUENCE = -1
_SEQUENCE_MASK = 0x7FFFFFFF
# When nothing is due.
NEVER = float("inf")

# Errors for which nothing of a batch was appended, and that a part of it may not meet again.
_TOO_LARGE = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")

_NO_LEADER = errors.named("LEADER_NOT_AVAILABLE").code

# After these a batch may be in the log or not; whatever else ends a request did so before it was sent.
_UNANSWERED = (BrokerConnectionError, ProtocolError, NoBrokersError, DeadlineError)


class Identity(collections.namedtuple("Identity", ("producer_id", "epoch"))):
    """A producer id and its epoch, as InitProducerId gives them."""

    __slots__ = ()


NO_IDENTITY = Identity(-1, -1)


class Outcome(
    collections.namedtuple(
        "Outcome",
        (
            "topic", "partition", "generation", "waiters", "timestamps", "offset", "append_time", "error",
            "is_record_at_fault",
        ),
    )  # fmt: skip
):
    """The end of some records: acknowledged, or failed with ``error``.

    ``waiters`` and ``timestamps`` have an item a record, in order; ``offset`` is that of the first (-1: not
    known) and ``append_time`` the broker's time in milliseconds (-1: the records' own timestamps stand).
    ``is_record_at_fault``: another record might have gone through in its place.
    """

    __slots__ = ()


class Batch(object):
    """Records of one partition that are sent and acknowledged as one.

    ``waiters`` is what `append` was given for each record; it is empty once they have been told of the end.
    """

    __slots__ = (
        "topic", "partition", "builder", "waiters", "timestamps", "cost", "generation", "created", "deadline",
        "is_full", "broker_id", "attempts", "retry_at", "failure", "identity", "sequence", "in_doubt",
    )  # fmt: skip

    def __init__(self, topic, partition, builder, generation, created, deadline):
        self.topic, self.partition, self.builder = topic, partition, builder
        self.waiters, self.timestamps, self.cost = [], [], 0
        self.generation, self.created, self.deadline = generation, created, deadline
        self.is_full = False
        self.broker_id, self.attempts, self.retry_at, self.failure = None, 0, 0, None
        self.identity, self.sequence, self.in_doubt = NO_IDENTITY, NO_SEQUENCE, False

    def __repr__(self):
        return "<Batch of %d records for %s, try %d>" % (self.builder.count, self.place, self.attempts)

    @property
    def place(self):
        return "%s[%d]" % (self.topic, self.partition)

    def prepare(self):
        """A generator of short steps (compression), after which `build` is quick."""
        return self.builder.prepare()

    def build(self):
        """The batch's bytes."""
        return self.builder.build(self.identity.producer_id, self.identity.epoch, self.sequence)


class _Queue(object):
    """A partition's batches: waiting ones and the one in flight. ``sequence`` goes on under ``identity``."""

    __slots__ = ("topic", "partition", "waiting", "flying", "identity", "sequence", "was_sent_to")

    def __init__(self, topic, partition):
        self.topic, self.partition = topic, partition
        self.waiting, self.flying = collections.deque(), None
        self.identity, self.sequence = None, 0
        self.was_sent_to = False

    def open_batch(self, size, generation, most_bytes):
        """The last batch, if it takes a record of up to `size` bytes."""
        if not self.waiting:
            return None
        last = self.waiting[-1]
        if last.is_full or last.generation != generation or last.builder.size + size > most_bytes:
            return None
        return last


class Accumulator(object):
    """The batches of all partitions.

    :param new_builder: gives an empty records.BatchBuilder
    :param batch_size: the most records of a batch
    :param batch_bytes: the most bytes of a batch before compression (a larger record gets its own batch)
    :param linger: seconds that a batch waits for more records
    :param max_request_bytes: the most bytes of the batches in a request (a larger batch gets its own request)
    :param backoff: attempt (from 0) -> seconds until a batch is sent again to the same broker
    :param is_idempotent: whether batches are numbered; they then wait until ``identity`` is set

    ``used_bytes`` is what all records not yet acknowledged take. After `ready`, ``lacks_leader`` and
    ``lacks_identity`` say whether batches wait for these. ``generation`` counts flushes. No batch lingers while
    ``is_room_wanted``.
    """

    def __init__(
        self, new_builder, batch_size, batch_bytes, linger, max_request_bytes, backoff, is_idempotent,
        max_in_flight=MAX_IN_FLIGHT
    ):  # fmt: skip
        self._new_builder, self._batch_size, self._batch_bytes = new_builder, batch_size, batch_bytes
        self._linger, self._max_request_bytes, self._max_in_flight = linger, max_request_bytes, max_in_flight
        self._backoff = backoff
        self.is_idempotent = is_idempotent
        self.identity = None
        self.used_bytes = 0
        self.generation = 0
        self.lacks_leader = self.lacks_identity = self.is_room_wanted = False
        self._queues = {}
        # The queues that have batches and none in flight; the longest waiting first.
        self._idle = collections.OrderedDict()
        self._in_flight = collections.Counter()
        self._next_due = self._next_deadline = NEVER

    # -- records come in

    def takes(self, topic, partition, size, generation):
        """Whether a record of up to `size` bytes would join a batch that is there."""
        queue = self._queues.get((topic, partition))
        return queue is not None and queue.open_batch(size, generation, self._batch_bytes) is not None

    def append(
        self, topic, partition, timestamp, key, value, headers, size, cost, waiter, now, deadline, generation
    ):  # fmt: skip
        """Add a record; gives whether that makes something to do (`ready`, or another time to wake up).

        `size` is records.record_size's, `cost` what the record takes in memory, `waiter` is for the Outcome,
        `deadline` is when it fails, and `generation` that at the time of the caller's call.
        ProtocolError for what can't be encoded, with nothing changed.
        """
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = _Queue(topic, partition)
        batch = queue.open_batch(size, generation, self._batch_bytes)
        is_new = batch is None
        if is_new:
            batch = Batch(topic, partition, self._new_builder(), generation, now, deadline)
        builder = batch.builder
        builder.append(timestamp, key, value, headers)
        batch.waiters.append(waiter)
        batch.timestamps.append(timestamp)
        batch.cost += cost
        self.used_bytes += cost
        if builder.count >= self._batch_size or builder.size >= self._batch_bytes:
            batch.is_full = True
        if is_new:
            queue.waiting.append(batch)
            if deadline < self._next_deadline:
                self._next_deadline = deadline
            if queue.flying is None:
                self._idle[topic, partition] = queue
        return is_new or batch.is_full

    def flush(self):
        """Let no batch so far wait for more records; gives the last generation of what there is so far."""
        self.generation += 1
        return self.generation - 1

    # -- batches go out

    def ready(self, now, leader):
        """{broker_id: [Batch]} to be sent now, each list in a request; they count as in flight from here on.

        `leader` is (topic, partition) -> broker id or None. To be called until it gives nothing: what doesn't
        fit into a request goes into the next.
        """
        requests, sizes = {}, {}
        self.lacks_leader, self.lacks_identity, self._next_due = False, False, NEVER
        for place, queue in list(self._idle.items()):
            batch = queue.waiting[0]
            due = self._due(queue, batch)
            if due > now and not batch.attempts:
                self._next_due = min(self._next_due, due)
                continue
            broker_id = leader(*place)
            if broker_id is None:
                self._note_no_leader(batch)
                continue
            if due > now and broker_id == batch.broker_id:
                self._next_due = min(self._next_due, due)
                continue
            if broker_id not in requests and self._in_flight[broker_id] >= self._max_in_flight:
                continue
            size = sizes.get(broker_id, 0) + batch.builder.size
            if broker_id in requests and size > self._max_request_bytes:
                continue
            if self.is_idempotent and not self._number(queue, batch):
                continue
            if broker_id not in requests:
                requests[broker_id] = []
                self._in_flight[broker_id] += 1
            sizes[broker_id] = size
            requests[broker_id].append(self._take_off(queue, broker_id))
        return requests

    def _due(self, queue, batch):
        """When a batch may be sent: at once, after its linger, or for a new try after its back-off."""
        if batch.attempts:
            return batch.retry_at
        if batch.is_full or batch.generation < self.generation or len(queue.waiting) > 1 or self.is_room_wanted:
            return 0
        return batch.created + self._linger

    def _note_no_leader(self, batch):
        self.lacks_leader = True
        if batch.failure is None:
            batch.failure = errors.exception(_NO_LEADER, about=batch.place)

    def _number(self, queue, batch):
        """Give the batch a sequence number, unless it has one; False if there is no producer id for it."""
        if batch.sequence != NO_SEQUENCE:
            return True
        if queue.identity is None:
            if self.identity is None:
                self.lacks_identity = True
                return False
            queue.identity, queue.sequence = self.identity, 0
        batch.identity, batch.sequence = queue.identity, queue.sequence
        queue.sequence = (queue.sequence + batch.builder.count) & _SEQUENCE_MASK
        return True

    def _take_off(self, queue, broker_id):
        batch = queue.flying = queue.waiting.popleft()
        batch.is_full = True
        batch.broker_id = broker_id
        batch.attempts += 1
        queue.was_sent_to = True
        del self._idle[queue.topic, queue.partition]
        return batch

    def note_failure(self, error, topic, partition):
        """Remember what keeps the batches that wait there from being sent, for the time when they are overdue."""
        self._queues[topic, partition].waiting[0].failure = error

    def note_no_identity(self, error):
        """Remember why there is no producer id, for batches that have failed by nothing else."""
        for queue in six.itervalues(self._idle):
            queue.waiting[0].failure = queue.waiting[0].failure or error

    def wake_at(self):
        """When `ready` or `expire` may have something new though nothing has happened; infinity for never."""
        return min(self._next_due, self._next_deadline)

    # -- answers come in

    def request_ended(self, broker_id):
        """The broker has room for another request."""
        self._in_flight[broker_id] -= 1

    def answered(self, batch, answer, now):
        """[Outcome] for a batch's part of a ProduceResponse (`error_code`, `base_offset`, ...)."""
        row = errors.lookup(answer.error_code)
        if row.reaction == errors.NONE:
            return self.acknowledged(batch, answer.base_offset, answer.log_append_time_ms)
        error = errors.exception(row.code, about=batch.place, text=answer.error_message)
        if batch.waiters:
            if row.name in _TOO_LARGE:
                return self._too_large(batch, error)
            bad = {each.batch_index: each for each in answer.record_errors or ()}
            if any(0 <= index < batch.builder.count for index in bad):
                return self._bad_records(batch, bad, row, error)
            if row.reaction == errors.NEW_PRODUCER_ID:
                self._renew(self._land(batch))
                self._forget_number(batch)
                self._again(batch, error, now)
                return []
            if row.retriable:
                self._land(batch)
                batch.in_doubt = True
                self._again(batch, error, now)
                return []
        return self.failed(batch, error)

    def unanswered(self, batch, error, now):
        """[Outcome] for a batch whose request ended with `error` and no answer."""
        if not batch.waiters or not may_pass(error):
            return self.failed(batch, error)
        self._land(batch)
        batch.in_doubt = True
        self._again(batch, error, now)
        return []

    def acknowledged(self, batch, offset=-1, append_time=-1):
        """[Outcome] for a batch in flight that is in the log from `offset` on."""
        self._land(batch)
        return self._end(batch, None, offset, append_time)

    def failed(self, batch, error):
        """[Outcome] for a batch in flight that fails for good, perhaps after it was appended."""
        queue = self._land(batch)
        if batch.sequence != NO_SEQUENCE:
            self._renew(queue)
        return self._end(batch, error)

    def _land(self, batch):
        queue = self._queues[batch.topic, batch.partition]
        queue.flying = None
        if queue.waiting:
            self._idle[batch.topic, batch.partition] = queue
        return queue

    def _again(self, batch, error, now):
        batch.failure = error
        batch.retry_at = now + self._backoff(batch.attempts - 1)
        self._put_first([batch])

    def _put_first(self, batches):
        place = batches[0].topic, batches[0].partition
        queue = self._queues[place]
        queue.waiting.extendleft(reversed(batches))
        self._idle[place] = queue

    def _too_large(self, batch, error):
        """Halve the batch, until the record that is too large is alone."""
        self._refused(batch)
        count = batch.builder.count
        if count == 1:
            error = RecordTooLargeError(
                "a record of %d bytes for %s is more than the broker takes (max.message.bytes): %s"
                % (batch.builder.size, batch.place, error)
            )
            return self._end(batch, error, is_record_at_fault=True)
        everything = list(range(count))
        self._put_first(self._parts(batch, [everything[:count // 2], everything[count // 2:]]))
        return []

    def _bad_records(self, batch, bad, row, error):
        """Fail the records that the broker names (KIP-467), each with its text, and send the others again."""
        self._refused(batch)
        good = [index for index in range(batch.builder.count) if index not in bad]
        if good:
            parts = self._parts(batch, [good])
            batch.cost -= parts[0].cost
            self._put_first(parts)
        waiters, timestamps = batch.waiters, batch.timestamps
        self._end(batch, error)
        outcomes = []
        for index in sorted(index for index in bad if 0 <= index < len(waiters)):
            text = bad[index].batch_index_error_message
            own = errors.exception(row.code, about=batch.place, text=text) if text else error
            outcomes.append(_outcome(batch, [waiters[index]], [timestamps[index]], own, -1, -1, True))
        return outcomes

    def _refused(self, batch):
        """The broker didn't append the batch; unless it may have before, its numbers are free again."""
        queue = self._land(batch)
        if batch.in_doubt:
            self._renew(queue)
        elif batch.sequence != NO_SEQUENCE:
            queue.sequence = batch.sequence

    def _parts(self, batch, groups):
        """A batch of the records at each group of indexes; they are read back from their encoded form."""
        content, count = _read(batch), batch.builder.count
        parts = []
        for indexes in groups:
            part = Batch(
                batch.topic, batch.partition, self._new_builder(), batch.generation, batch.created,
                batch.deadline,
            )  # fmt: skip
            for index in indexes:
                part.builder.append(*content[index])
                part.waiters.append(batch.waiters[index])
                part.timestamps.append(batch.timestamps[index])
            # Such that the costs of all records add up to the batch's.
            cost = batch.cost
            part.cost = sum(cost * (index + 1) // count - cost * index // count for index in indexes)
            part.is_full = True
            part.failure = batch.failure
            parts.append(part)
        return parts

    def _renew(self, queue):
        """Have the partition's next new batch start at 0, under a producer id that it hasn't used."""
        if queue.identity is not None and queue.identity == self.identity:
            self.identity = None
        queue.identity = None

    def _forget_number(self, batch):
        batch.identity, batch.sequence, batch.in_doubt = NO_IDENTITY, NO_SEQUENCE, False

    def _end(self, batch, error, offset=-1, append_time=-1, is_record_at_fault=False):
        waiters, timestamps = batch.waiters, batch.timestamps
        self.used_bytes -= batch.cost
        batch.waiters, batch.timestamps, batch.cost = [], [], 0
        if not waiters:
            return []
        return [_outcome(batch, waiters, timestamps, error, offset, append_time, is_record_at_fault)]

    # -- time passes, or it is over

    def expire(self, now):
        """[Outcome] of all whose deadline has come, in flight or not."""
        if now < self._next_deadline:
            return []
        outcomes = []
        self._next_deadline = NEVER
        for queue in six.itervalues(self._queues):
            batches = self._batches(queue)
            for batch in batches:
                if batch.deadline > now:
                    self._next_deadline = min(self._next_deadline, batch.deadline)
                    break
                outcomes += self._drop(queue, batch, self._overdue(batch))
        return outcomes

    def fail_waiting(self, error, places=None):
        """[Outcome] of every batch that isn't in flight, or those at (topic, partition)s in `places`."""
        outcomes = []
        for place in list(self._idle) if places is None else places:
            queue = self._queues[place]
            for batch in list(queue.waiting):
                outcomes += self._drop(queue, batch, error)
        return outcomes

    def fail_all(self, error):
        """[Outcome] of every batch, in flight or not."""
        outcomes = []
        for queue in six.itervalues(self._queues):
            for batch in self._batches(queue):
                outcomes += self._drop(queue, batch, error)
        return outcomes

    def waiting_places(self):
        """[(topic, partition, whether anything was ever sent there)] where batches wait, and none flies."""
        return [(queue.topic, queue.partition, queue.was_sent_to) for queue in six.itervalues(self._idle)]

    def _batches(self, queue):
        flying = [queue.flying] if queue.flying is not None and queue.flying.waiters else []
        return flying + list(queue.waiting)

    def _drop(self, queue, batch, error):
        """Fail a batch; one in flight stays there, with nobody waiting, until its request ends."""
        if batch is not queue.flying:
            queue.waiting.remove(batch)
            if batch.sequence != NO_SEQUENCE:
                self._renew(queue)
            if not queue.waiting:
                self._idle.pop((queue.topic, queue.partition), None)
        return self._end(batch, error)

    def _overdue(self, batch):
        return DeadlineError(
            "it was not acknowledged within delivery_timeout_ms; %s" % (
                "the last failure was: %s" % batch.failure if batch.failure else
                "no answer has come" if batch.attempts else "it was not sent"
            ),
            batch.failure,
        )


def may_pass(error):
    """Whether the same may go through later, after this KielError."""
    return error.retriable if isinstance(error, BrokerError) else isinstance(error, _UNANSWERED)


def _outcome(batch, waiters, timestamps, error, offset=-1, append_time=-1, is_record_at_fault=False):
    return Outcome(
        batch.topic, batch.partition, batch.generation, waiters, timestamps, offset, append_time, error,
        is_record_at_fault,
    )  # fmt: skip


def _read(batch):
    """[(timestamp, key, value, headers)] of a batch."""
    data = batch.builder.build()
    content = []
    for each in records.batches(Span(data, 0, len(data))):
        for columns in each.columns():
            if columns is not None:
                headers = columns.headers or [None] * len(columns.values)
                content.extend(zip(columns.timestamps, columns.keys, columns.values, headers))
    return content
