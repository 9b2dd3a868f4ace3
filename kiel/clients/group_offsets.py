"""A group's offsets: commits them to the coordinator and fetches them, by a connection of their own."""
import collections
import logging

from tornado import gen, locks

from kiel.clients.commits import Commits, is_passing
from kiel.exc import BrokerConnectionError, BrokerError, DeadlineError, KielError
from kiel.groups import events, verdict
from kiel.protocol import errors
from kiel.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kiel.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic

log = logging.getLogger(__name__)

# Its connection: neither a fetch nor a JoinGroup is ever before a commit there.
LANE = "offsets"

# What a broker refuses is asked for again so often.
REFUSED_PAUSE_SECONDS = 1.0

_TOO_LARGE = errors.named("OFFSET_METADATA_TOO_LARGE").code
_UNKNOWN = errors.named("UNKNOWN_TOPIC_OR_PARTITION").code


class GroupOffsets(object):
    """:param client: the consumer; :param member: its GroupMember

    Places are (topic, partition); ``commits`` is what is to be committed. One commit is on its way at a time.
    """

    def __init__(self, client, member, interval_ms):
        self.commits = Commits(interval_ms / 1000.0, client.backoff)
        self._client, self._member = client, member
        self._lock = locks.Lock()
        self._is_running = False

    # -- committing

    def wake(self):
        """Commit what is pending beside everything else, when it is due."""
        if not self._is_running and self.commits.pending:
            self._is_running = True
            self._client.spawn(self._run())

    @gen.coroutine
    def _run(self):
        try:
            while self.commits.pending and not self._client.cluster.stopped:
                pause = self.commits.pause(self._client.loop.time())
                if pause > 0:
                    yield self._client.wait(pause)
                else:
                    yield self._commit_pending()
        finally:
            self._is_running = False

    @gen.coroutine
    def _commit_pending(self):
        yield self._lock.acquire()
        try:
            sent = self.commits.take(self._client.loop.time())
            if sent:
                results = yield self._commit(sent, self._client.default_metadata)
                self._settle(sent, results)
        finally:
            self._lock.release()

    def _settle(self, sent, results):
        for place, error in sorted(self.commits.settle(self._client.loop.time(), sent, results).items()):
            log.error(
                "group %s: offset %d of %s[%d] was not committed, and will be tried again with the next commit: %s",
                self._client.group_name, sent[place], place[0], place[1], error,
            )

    @gen.coroutine
    def flush(self, places, seconds):
        """Commit all that is pending of `places` before these are given up, within `seconds` if at all."""
        deadline, attempt = self._client.loop.time() + seconds, 0
        while True:
            yield self._commit_pending()
            left = sorted(place for place in places if place in self.commits.pending)
            if not left:
                return
            pause = self._client.backoff(attempt)
            attempt += 1
            if self._client.cluster.stopped or self._client.loop.time() + pause > deadline:
                log.warning(
                    "group %s: given up without a commit of what was acknowledged last, which will come again: %r",
                    self._client.group_name, left,
                )
                return
            yield self._client.wait(pause)

    @gen.coroutine
    def commit(self, offsets, metadata, seconds):
        """Commit `offsets` ({place: offset}); the first error that no trying mends in `seconds` is raised."""
        deadline, attempt, missing = self._client.loop.time() + seconds, 0, dict(offsets)
        while True:
            yield self._lock.acquire()
            try:
                results = yield self._commit(missing, metadata)
                self.commits.confirm({place: missing[place] for place in missing if results[place] is None})
            finally:
                self._lock.release()
            failed = [(place, results[place]) for place in sorted(missing) if results[place] is not None]
            refused = [error for _, error in failed if not is_passing(error)]
            missing = {place: missing[place] for place, error in failed if is_passing(error)}
            if refused:
                raise refused[0]
            if not missing:
                return
            pause = self._client.backoff(attempt)
            attempt += 1
            if self._client.cluster.stopped or self._client.loop.time() + pause > deadline:
                raise DeadlineError("offsets were not committed in time: %s" % failed[0][1], failed[0][1])
            yield self._client.wait(pause)

    @gen.coroutine
    def _commit(self, offsets, metadata):
        """One try: {place: None, or the KielError}."""
        results = yield self._commit_once(offsets, metadata)
        too_large = [place for place, error in results.items() if getattr(error, "code", None) == _TOO_LARGE]
        if too_large and metadata:
            again = yield self._commit_once({place: offsets[place] for place in too_large}, u"")
            results.update(again)
        raise gen.Return(results)

    @gen.coroutine
    def _commit_once(self, offsets, metadata):
        machine = self._member.machine
        generation = machine.generation
        request = OffsetCommitRequest(
            group_id=self._client.group_name,
            generation_id_or_member_epoch=generation,
            member_id=machine.member_id,
            group_instance_id=self._client.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offsets[topic, partition],
                            committed_metadata=metadata,
                        )
                        for partition in partitions
                    ],
                )
                for topic, partitions in _by_topic(offsets).items()
            ],
        )
        result = yield self._ask(request)
        if isinstance(result, KielError):
            result = dict.fromkeys(offsets, result)
        missing = BrokerError(_UNKNOWN, "UNKNOWN_TOPIC_OR_PARTITION", True, text="the broker's answer leaves it out")
        results = {place: result.get(place, missing) for place in offsets}
        self._tell_member(generation, results.values())
        raise gen.Return(results)

    def _tell_member(self, generation, results):
        """Have the machine know what the errors say of the membership, each once."""
        told = set()
        for error in results if self._member.machine.coordinator is not None else ():
            if error is not None and verdict.word(error) != "refused" and str(error) not in told:
                told.add(str(error))
                self._member.post(events.CommitFailed(generation, error))

    def read_commit(self, response):
        """{place: None, or the BrokerError} of an OffsetCommitResponse."""
        return {
            (topic.name, each.partition_index): errors.exception(
                each.error_code, about="group %s, %s[%d]" % (self._client.group_name, topic.name, each.partition_index)
            )
            if each.error_code
            else None
            for topic in response.topics
            for each in topic.partitions
        }

    # -- fetching

    @gen.coroutine
    def fetch(self, wanted, seconds=None):
        """{place: committed offset, or None where there is none}.

        `wanted` gives the places, and is asked anew each time: some may not be wanted any more. What is refused
        is told to the application and tried again; with `seconds` it is raised, and DeadlineError when they
        have passed.
        """
        client, found, attempt = self._client, {}, 0
        deadline = None if seconds is None else client.loop.time() + seconds
        while True:
            missing = set(wanted()) - set(found)
            if not missing or client.cluster.stopped:
                raise gen.Return(found)
            results = yield self._fetch_once(missing)
            failed = [results[place] for place in sorted(missing) if isinstance(results[place], KielError)]
            found.update({place: results[place] for place in missing if not isinstance(results[place], KielError)})
            if not failed:
                continue
            refused = [error for error in failed if verdict.word(error) == "refused"]
            pause = REFUSED_PAUSE_SECONDS if refused else client.backoff(attempt)
            attempt += 1
            if deadline is not None:
                if refused:
                    raise refused[0]
                if client.loop.time() + pause > deadline:
                    raise DeadlineError("committed offsets were not told in time: %s" % failed[0], failed[0])
            elif refused:
                client.tell(refused[0])
            yield client.wait(pause)

    @gen.coroutine
    def _fetch_once(self, places):
        group = OffsetFetchRequestGroup(
            group_id=self._client.group_name,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
                for topic, partitions in _by_topic(places).items()
            ],
        )
        generation = self._member.machine.generation
        result = yield self._ask(OffsetFetchRequest(groups=[group], require_stable=True))
        if isinstance(result, KielError):
            result = dict.fromkeys(places, result)
        results = {place: result.get(place) for place in places}
        self._tell_member(generation, [each for each in results.values() if isinstance(each, KielError)])
        raise gen.Return(results)

    def read_fetch(self, response):
        """{place: offset, None or BrokerError} of an OffsetFetchResponse, or the BrokerError for all of it."""
        name = self._client.group_name
        group = response.group(name)
        if group.error_code:
            return errors.exception(group.error_code, about="group %s" % name)
        found = {}
        for topic in group.topics:
            for each in topic.partitions:
                place = (topic.name, each.partition_index)
                if each.error_code and each.error_code != _UNKNOWN:
                    found[place] = errors.exception(each.error_code, about="group %s, %s[%d]" % ((name,) + place))
                else:
                    found[place] = each.committed_offset if each.committed_offset >= 0 else None
        return found

    @gen.coroutine
    def _ask(self, request):
        """What the coordinator answers, or the KielError."""
        broker_id = self._member.machine.coordinator
        if broker_id is None:
            error = BrokerConnectionError(
                "the coordinator of group %s" % self._client.group_name, "resolve", "it isn't known at the moment"
            )
            raise gen.Return(error)
        try:
            results = yield self._client.send({broker_id: request}, lane=LANE)
        except KielError as error:
            raise gen.Return(error)
        raise gen.Return(results[broker_id])


def _by_topic(places):
    listed = collections.OrderedDict()
    for topic, partition in sorted(places):
        listed.setdefault(topic, []).append(partition)
    return listed
