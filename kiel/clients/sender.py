"""What a producer does by itself: it sends batches, finds leaders, and gets a producer id.

``_pump`` does whatever can be done. It runs once an iteration of the loop after anything has changed, or at the time
when the next thing is due; nothing else starts a request.
"""
import collections
import logging
import random

import six
from tornado import gen, locks

from kiel import constants
from kiel.clients import batching
from kiel.exc import KielError, ProtocolError, UnsupportedVersionError
from kiel.protocol import errors
from kiel.protocol.init_producer_id import InitProducerIdRequest
from kiel.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData

log = logging.getLogger(__name__)

# Kafka ignores it where there are no transactions, but checks that it is positive.
_TRANSACTION_TIMEOUT_MS = 2 ** 31 - 1


class Sender(object):
    """Sends what an Accumulator has ready, by `client`'s ``send``.

    :param settle: called with a list of batching.Outcome whenever records have ended
    :param tend: called with the time by each pump; gives when it is to be called again at the latest
    :param acks: -1, 0 or 1
    :param ack_timeout_ms: how long a broker may wait for replicas
    :param is_idempotence_wanted: whether batches that can't be numbered fail; else they then go without numbers
    """

    def __init__(self, client, accumulator, settle, tend, acks, ack_timeout_ms, is_idempotence_wanted):
        self._client, self._accumulator, self._settle, self._tend = client, accumulator, settle, tend
        self._acks, self._ack_timeout_ms = acks, ack_timeout_ms
        self._is_idempotence_wanted = is_idempotence_wanted
        self.is_over = False
        # {id of the request: (broker_id, [Batch])}
        self._flights = {}
        self._loading, self._slice_started = locks.Lock(), 0
        self._is_scheduled = self._is_healing = self._is_asking = False
        self._timer, self._timer_at = None, None
        self._heal_attempt = self._identity_attempt = self._ask_identity_at = 0

    def schedule(self):
        """Have the pump run soon."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._client.loop.add_callback(self._pump)

    def stop(self):
        """Send nothing any more."""
        self.is_over = True
        if self._timer is not None:
            self._client.loop.remove_timeout(self._timer)
            self._timer = None

    def _pump(self):
        self._is_scheduled = False
        if self.is_over:
            return
        now = self._slice_started = self._client.loop.time()
        self._settle(self._accumulator.expire(now))
        wake_at = self._tend(now)
        while True:
            ready = self._accumulator.ready(now, self._client.cluster.leader)
            for broker_id, batches in six.iteritems(ready):
                self._client.spawn(self._fly(broker_id, batches))
            if not ready:
                break
        if self._accumulator.lacks_leader and not self._is_healing:
            self._client.spawn(self._find_leaders())
        if self._accumulator.lacks_identity and not self._is_asking:
            if self._ask_identity_at <= now:
                self._client.spawn(self._ask_identity())
            else:
                wake_at = min(wake_at, self._ask_identity_at)
        self._wake(min(wake_at, self._accumulator.wake_at()))

    def _wake(self, when):
        """See to it that the pump runs at `when`, if it isn't to run earlier."""
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._client.loop.remove_timeout(self._timer)
            self._timer = None
        if when != batching.NEVER:
            self._timer, self._timer_at = self._client.loop.call_at(when, self._woken), when

    def _woken(self):
        self._timer = None
        self._pump()

    # -- produce requests

    @gen.coroutine
    def _fly(self, broker_id, batches):
        """Send one request, and see to its batches if that brings no response (with acks=0 there is none)."""
        request = ProduceRequest(acks=self._acks, timeout_ms=self._ack_timeout_ms)
        self._flights[id(request)] = broker_id, batches
        failure = ProtocolError("the request ended without an answer", "produce")
        try:
            yield self._load(request, batches)
            if not self.is_over:
                results = yield self._client.send({broker_id: request})
                failure = results[broker_id]
        except KielError as error:
            failure = error
        finally:
            # Whatever went wrong, nobody is left waiting.
            if self._flights.pop(id(request), None) is not None:
                self._landed(broker_id, batches, failure)

    @gen.coroutine
    def _load(self, request, batches):
        """Build the batches, one request's at a time, so that the loop is free in between."""
        topics = collections.OrderedDict()
        with (yield self._loading.acquire()):
            for batch in batches:
                for _ in batch.prepare():
                    if self._client.loop.time() - self._slice_started > constants.SLICE_SECONDS:
                        yield gen.moment
                        self._slice_started = self._client.loop.time()
                topics.setdefault(batch.topic, []).append(
                    PartitionProduceData(index=batch.partition, records=batch.build())
                )
        request.topic_data = [TopicProduceData(name=name, partition_data=data) for name, data in topics.items()]

    def _landed(self, broker_id, batches, failure):
        self._accumulator.request_ended(broker_id)
        now = self._client.loop.time()
        for batch in batches:
            if failure is None:
                self._settle(self._accumulator.acknowledged(batch))
            else:
                self._settle(self._accumulator.unanswered(batch, failure, now))
        self.schedule()

    def take_produce_response(self, response):
        """Give each batch its answer: it is acknowledged, has failed, or is to be sent again."""
        broker_id, batches = self._flights.pop(id(response.request), (None, ()))
        if broker_id is None:
            return
        self._accumulator.request_ended(broker_id)
        now = self._client.loop.time()
        flying = {(batch.topic, batch.partition): batch for batch in batches}
        for topic in response.responses:
            for answer in topic.partition_responses:
                batch = flying.pop((topic.name, answer.index), None)
                if batch is None:
                    continue
                if errors.lookup(answer.error_code).reaction == errors.REFRESH_METADATA:
                    self._client.heal_cluster = True
                self._settle(self._accumulator.answered(batch, answer, now))
        for batch in six.itervalues(flying):
            missing = ProtocolError("there is no answer for %s" % batch.place, "produce")
            self._settle(self._accumulator.unanswered(batch, missing, now))
        self.schedule()

    # -- what is missing

    def metadata_changed(self):
        """Batches have other leaders, or fail because their topic or partition is refused or isn't there."""
        cluster = self._client.cluster
        for topic, partition, was_sent_to in self._accumulator.waiting_places():
            error = cluster.topic_errors.get(topic)
            if error is None and not was_sent_to and partition not in cluster.topics.get(topic, (partition,)):
                error = errors.exception(
                    errors.named("UNKNOWN_TOPIC_OR_PARTITION").code,
                    about="%s[%d]" % (topic, partition),
                    text="the topic's partitions are %r" % sorted(cluster.topics[topic]),
                )
            elif error is None:
                continue
            elif batching.may_pass(error):
                self._accumulator.note_failure(error, topic, partition)
                continue
            self._settle(self._accumulator.fail_waiting(error, [(topic, partition)]))
        self.schedule()

    @gen.coroutine
    def _find_leaders(self):
        self._is_healing = True
        try:
            yield self._client.cluster.heal()
            yield self._client.rest(self._client.backoff(self._heal_attempt))
            self._heal_attempt = self._heal_attempt + 1 if self._accumulator.lacks_leader else 0
        finally:
            self._is_healing = False
        self.schedule()

    @gen.coroutine
    def _ask_identity(self):
        """Get a producer id (InitProducerId); idempotence that nobody asked for is left out where it can't be."""
        self._is_asking = True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        cluster = self._client.cluster
        known = sorted(cluster.brokers)
        able = [each for each in known if cluster.api_versions(each, request.key)]
        broker_id = random.choice(able or known)
        try:
            results = yield self._client.send({broker_id: request})
        finally:
            self._is_asking = False
        if results[broker_id] is None:
            self._identity_attempt = 0
        else:
            self._no_identity(results[broker_id])
        self.schedule()

    def _no_identity(self, error):
        if not self._is_idempotence_wanted and not batching.may_pass(error):
            level = logging.INFO if isinstance(error, UnsupportedVersionError) else logging.WARNING
            log.log(level, "producing without idempotence, so a retry may make a duplicate: %s", error)
            self._accumulator.is_idempotent = False
            return
        self._ask_identity_at = self._client.loop.time() + self._client.backoff(self._identity_attempt)
        self._identity_attempt += 1
        if batching.may_pass(error):
            self._accumulator.note_no_identity(error)
        else:
            self._settle(self._accumulator.fail_waiting(error))

    def take_init_producer_id_response(self, response):
        """Have batches numbered under the producer id; gives the BrokerError if there is none."""
        if response.error_code:
            return errors.exception(response.error_code, about="a producer id")
        self._accumulator.identity = batching.Identity(response.producer_id, response.producer_epoch)
