"""Looking offsets up: what every client that asks brokers for offsets shares."""
from tornado import gen

from kiel.clients import offsets
from kiel.clients.client import Client
from kiel.clients.times import milliseconds
from kiel.exc import BrokerConnectionError, DeadlineError, KielError
from kiel.protocol import errors


class OffsetLookup(Client):
    """A Client that finds offsets by time (ListOffsets API); ``read_committed`` says what counts as the end."""

    read_committed = False

    @gen.coroutine
    def offsets_for_times(self, times):
        """For each partition the first offset of a time or later (ListOffsets API, KIP-79).

        :param times: {topic: {partition: datetime or milliseconds since 1970}}
        :returns: {topic: {partition: OffsetAndTimestamp, or None where there is no such record}}
        """
        self.check_usable()
        wanted = {
            (topic, partition): milliseconds(time)
            for topic, partitions in times.items()
            for partition, time in partitions.items()
        }
        found = yield self.find_offsets(wanted)
        answer = {topic: {} for topic in times}
        for (topic, partition), result in found.items():
            answer[topic][partition] = result if result.offset >= 0 else None
        raise gen.Return(answer)

    @gen.coroutine
    def find_offsets(self, wanted, in_part=False):
        """{(topic, partition): OffsetAndTimestamp} for {(topic, partition): ms, or LATEST or EARLIEST}.

        Tried again until `api_timeout_ms`; DeadlineError then, with the last cause. With `in_part` it is
        enough to find some, if all the others have leaders that can't be reached.
        """
        deadline = self.loop.time() + self.api_timeout_ms / 1000.0
        for topic in {topic for topic, _ in wanted}:
            yield self.cluster.topic(topic, self.api_timeout_ms)
        found, attempt = {}, 0
        while True:
            missing = {place: wanted[place] for place in wanted if place not in found}
            results = yield self.ask_offsets(missing)
            failed = [result for result in results.values() if isinstance(result, KielError)]
            for error in failed:
                if not (_is_unreachable(error) or getattr(error, "retriable", False)):
                    raise error
            found.update({place: result for place, result in results.items() if not isinstance(result, KielError)})
            if not failed or (in_part and found and all(_is_unreachable(error) for error in failed)):
                raise gen.Return(found)
            pause = self.backoff(attempt)
            attempt += 1
            if self.closing or self.loop.time() + pause > deadline:
                text = "offsets were not found within %d ms: %s" % (self.api_timeout_ms, failed[0])
                raise DeadlineError(text, failed[0])
            yield self.rest(pause)

    @gen.coroutine
    def ask_offsets(self, wanted):
        """Ask each partition's leader once: {(topic, partition): OffsetAndTimestamp, or the KielError}."""
        requests = offsets.build_requests(wanted, self.cluster.leader, self.read_committed)
        self.heal_cluster = self.heal_cluster or not requests
        results = yield self.send(requests)
        raise gen.Return(offsets.merge(wanted, requests, results))

    def handle_offset_response(self, response):
        """{(topic, partition): OffsetAndTimestamp or BrokerError} of a list-offsets response."""
        found = offsets.read_response(response)
        for result in found.values():
            if isinstance(result, KielError) and errors.lookup(result.code).reaction == errors.REFRESH_METADATA:
                self.heal_cluster = True
        return found


def _is_unreachable(error):
    """Whether a partition's leader doesn't answer, or there is none."""
    return isinstance(error, BrokerConnectionError) or getattr(error, "code", None) == offsets.LEADER_NOT_AVAILABLE
