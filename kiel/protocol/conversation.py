"""A conversation with one broker, without its socket: requests become bytes, and bytes become responses.

A frame on the wire is its length (an Int32) and as many bytes: a header and a message. Kafka answers the
requests of one connection in their order.
"""
import collections
import struct

import six

from kiel import constants
from kiel.exc import ProtocolError
from kiel.protocol.codec import skip_tags
from kiel.protocol.primitives import String

LAST_CORRELATION_ID = 0x7FFFFFFF

_length = struct.Struct(">i")
_request_start = struct.Struct(">ihhi")
_write_client_id = String.writer(False, True, "client_id")

_Sent = collections.namedtuple("_Sent", ("correlation_id", "request", "version"))


class Conversation(object):
    """Turns requests into bytes, and bytes into the responses to them.

    After a ProtocolError from what a broker sent, nothing that it sends later can be trusted: whatever is
    called then raises the same error. Responses that were complete before it are still returned.
    """

    def __init__(self, client_id, max_frame_bytes=constants.MAX_FRAME_BYTES, first_correlation_id=0):
        client_pieces = []
        _write_client_id(client_pieces, client_id)
        self._client_id = b"".join(client_pieces)
        self._max_frame_bytes = max_frame_bytes
        self._next_id = first_correlation_id
        self._sent = collections.deque()
        self._held = []
        self._held_bytes = 0
        self._frame_bytes = None  # None while a length is being read
        self._broken = None

    @property
    def pending(self):
        """How many requests are unanswered."""
        return len(self._sent)

    @property
    def wanted(self):
        """How many bytes it needs next: those of a length, or of the frame after it."""
        self._check()
        return (4 if self._frame_bytes is None else self._frame_bytes) - self._held_bytes

    def send(self, request, version, answered=True):
        """(correlation id, bytes) for a request; `answered` is False where no response will come (acks=0).

        A request that can't be encoded raises ProtocolError and leaves the conversation as it was.
        """
        self._check()
        body = request.pieces(version)
        tags = b"\0" if request.is_flexible(version) else b""
        size = 8 + len(self._client_id) + len(tags) + sum(len(piece) for piece in body)
        if size > LAST_CORRELATION_ID:
            raise ProtocolError("a request of %d bytes is too large for a frame" % size, request.api, version)
        correlation_id = self._next_id
        self._next_id = 0 if correlation_id == LAST_CORRELATION_ID else correlation_id + 1
        if answered:
            self._sent.append(_Sent(correlation_id, request, version))
        start = _request_start.pack(size, request.key, version, correlation_id)
        return correlation_id, b"".join([start, self._client_id, tags] + body)

    def receive(self, data):
        """[(correlation id, response)] for all that `data` (bytes, of any number) completes.

        Given no more than is ``wanted``, a frame isn't copied: the responses' records are spans of `data`.
        """
        self._check()
        answers = []
        try:
            for frame in self._frames(data):
                answers.append(self._read(frame))
        except ProtocolError as error:
            self._broken = error
            if not answers:
                raise
        return answers

    def _check(self):
        if self._broken is not None:
            raise self._broken

    def _frames(self, data):
        """Take lengths and frames off `data`; what is left over is held until more comes."""
        at = 0
        while len(data) - at >= self.wanted:
            after = at + self.wanted
            piece = data if at == 0 and after == len(data) else data[at:after]
            if self._held:
                piece = b"".join(self._held + [piece])
                self._held, self._held_bytes = [], 0
            at = after
            if self._frame_bytes is None:
                self._frame_bytes = self._frame_length(piece)
            else:
                self._frame_bytes = None
                yield piece
        if at < len(data):
            self._held.append(data[at:])
            self._held_bytes += len(data) - at

    def _frame_length(self, prefix):
        length = _length.unpack(prefix)[0]
        if 4 <= length <= self._max_frame_bytes:
            return length
        hint = _hint(prefix) or "at least 4 and at most %d are possible" % self._max_frame_bytes
        raise ProtocolError("the broker announces a response of %d bytes: %s" % (length, hint), position=0)

    def _read(self, frame):
        """(correlation id, response) of a whole frame."""
        correlation_id = _length.unpack_from(frame)[0]
        if not self._sent:
            raise ProtocolError("correlation id %d came where no request is unanswered" % correlation_id)
        sent = self._sent[0]
        if sent.correlation_id != correlation_id:
            raise ProtocolError(
                "correlation id %d came where %d is the next" % (correlation_id, sent.correlation_id),
                sent.request.api, sent.version, 0,
            )
        response_class = sent.request.response
        start = 4
        if response_class.flexible_header and response_class.is_flexible(sent.version):
            start = self._after_tags(frame, sent)
        response = response_class.decode(frame, sent.version, start)
        response.request = sent.request
        self._sent.popleft()
        return correlation_id, response

    def _after_tags(self, frame, sent):
        try:
            return skip_tags(frame, 4, len(frame))
        except ProtocolError as error:
            reason = "header: %s" % error.reason
            six.raise_from(ProtocolError(reason, sent.request.api, sent.version, error.position), None)


def _hint(prefix):
    """What speaks there instead of Kafka, if the first bytes tell."""
    if prefix[:2] in (b"\x15\x03", b"\x16\x03"):
        return "the port speaks TLS, and this connection doesn't"
    if prefix == b"HTTP":
        return "the port speaks HTTP, not Kafka's protocol"
    return None
