"""AMQP 0-9-1 as far as a producer with confirms and a consumer without acknowledgements need it.

Source: AMQP 0-9-1 specification, sections 1 (classes) and 4.2 (frames); RabbitMQ's extension
"Consumer Acknowledgements and Publisher Confirms".
"""

import socket
import struct
from collections.abc import Mapping
from typing import Final

from benchmarks.peers.exchange import ErrorAnswer, MessageCounter, Received

CHANNEL: Final = 1
PERSISTENT: Final = 2

_PROTOCOL: Final = b"AMQP\x00\x00\x09\x01"
_METHOD, _HEADER, _BODY = 1, 2, 3
_HEAD: Final = struct.Struct(">BHI")
_END: Final = b"\xce"

_START, _START_OK = (10, 10), (10, 11)
_TUNE, _TUNE_OK = (10, 30), (10, 31)
_OPEN, _OPEN_OK = (10, 40), (10, 41)
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)
_DECLARE, _DECLARE_OK = (50, 10), (50, 11)
_PUBLISH, _CONSUME = (60, 40), (60, 20)
_ACK: Final = (60, 80)
_CONFIRM_SELECT, _CONFIRM_SELECT_OK = (85, 10), (85, 11)
_DURABLE: Final = 0b10
_NO_ACK: Final = 0b10
_HAS_DELIVERY_MODE: Final = 1 << 12

_ACK_FRAME: Final = struct.Struct(">BHIHHQBB")
"""Frame type, channel, size; class, method, delivery tag, multiple; end of the frame."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return an encoded frame."""
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def publish(queue: str, message: bytes) -> bytes:
    """Return the frames that publish a persistent message to a queue."""
    method = struct.pack(">H", 0) + _short("") + _short(queue) + b"\0"
    properties = struct.pack(">HB", _HAS_DELIVERY_MODE, PERSISTENT)
    header = struct.pack(">HHQ", _PUBLISH[0], 0, len(message)) + properties
    return b"".join(
        (
            _method(CHANNEL, _PUBLISH, method),
            frame(_HEADER, CHANNEL, header),
            frame(_BODY, CHANNEL, message),
        )
    )


def consume(queue: str) -> bytes:
    """Return the request for all messages of a queue, without acknowledgements."""
    arguments = struct.pack(">H", 0) + _short(queue) + _short("") + bytes([_NO_ACK]) + _table({})
    return _method(CHANNEL, _CONSUME, arguments)


class Confirms:
    """Counts the messages that `basic.ack` confirms, one by one or up to a delivery tag."""

    def __init__(self) -> None:
        self._rest = b""
        self._all_below = 0
        """All messages up to this delivery tag are confirmed."""
        self._above: set[int] = set()

    def receive(self, data: bytes) -> Received:
        """Count the messages that complete frames confirm.

        Raises:
            ErrorAnswer: the broker sent something else, such as `basic.nack` or the end.
        """
        whole = self._rest + data
        end = len(whole) // _ACK_FRAME.size * _ACK_FRAME.size
        self._rest = whole[end:]
        before = self._all_below + len(self._above)
        for _, _, _, of_class, method, tag, is_multiple, last in _ACK_FRAME.iter_unpack(
            whole[:end]
        ):
            if (of_class, method) != _ACK or last != _END[0]:
                raise ErrorAnswer(f"no confirmation: class {of_class}, method {method}")
            self._confirm(tag, is_multiple=bool(is_multiple))
        return Received(self._all_below + len(self._above) - before)

    def _confirm(self, tag: int, *, is_multiple: bool) -> None:
        if is_multiple:
            self._all_below = max(self._all_below, tag)
            self._above = {each for each in self._above if each > tag}
        else:
            self._above.add(tag)
        while self._all_below + 1 in self._above:
            self._all_below += 1
            self._above.remove(self._all_below)


class Deliveries:
    """Counts delivered messages; nothing is sent for them."""

    def __init__(self) -> None:
        self._counter = MessageCounter()

    def receive(self, data: bytes) -> Received:
        """Count the messages that end in `data`."""
        return Received(self._counter.count(data))


class Channel:
    """A connection with one channel, whose publications are confirmed."""

    def __init__(self, sock: socket.socket, user: bytes, password: bytes) -> None:
        self.sock = sock
        sock.sendall(_PROTOCOL)
        self._expect(_START)
        self._send(
            0,
            _START_OK,
            _table({}) + _short("PLAIN") + _long(b"\0%s\0%s" % (user, password)) + _short("en_US"),
        )
        channels, frame_bytes, _ = struct.unpack(">HIH", self._expect(_TUNE))
        self._send(0, _TUNE_OK, struct.pack(">HIH", channels, frame_bytes, 0))  # no heartbeats
        self._call(0, _OPEN, _short("/") + _short("") + b"\0", _OPEN_OK)
        self._call(CHANNEL, _CHANNEL_OPEN, _short(""), _CHANNEL_OPEN_OK)
        self._call(CHANNEL, _CONFIRM_SELECT, b"\0", _CONFIRM_SELECT_OK)

    def declare(self, queue: str, arguments: Mapping[str, str]) -> None:
        """Create a durable queue."""
        given = struct.pack(">H", 0) + _short(queue) + bytes([_DURABLE]) + _table(arguments)
        self._call(CHANNEL, _DECLARE, given, _DECLARE_OK)

    def _call(
        self, channel: int, method: tuple[int, int], arguments: bytes, answer: tuple[int, int]
    ) -> bytes:
        self._send(channel, method, arguments)
        return self._expect(answer)

    def _send(self, channel: int, method: tuple[int, int], arguments: bytes) -> None:
        self.sock.sendall(_method(channel, method, arguments))

    def _expect(self, method: tuple[int, int]) -> bytes:
        """Return the arguments of the next method.

        Raises:
            ErrorAnswer: it is another one.
        """
        head = self.sock.recv(_HEAD.size, socket.MSG_WAITALL)
        if len(head) < _HEAD.size:
            raise ErrorAnswer(f"the broker closed the connection instead of sending {method}")
        _, _, size = _HEAD.unpack(head)
        payload = self.sock.recv(size + len(_END), socket.MSG_WAITALL)
        if struct.unpack_from(">HH", payload) != method:
            raise ErrorAnswer(f"expected method {method}, got {payload!r}")
        return payload[4:-1]


def _method(channel: int, method: tuple[int, int], arguments: bytes) -> bytes:
    return frame(_METHOD, channel, struct.pack(">HH", *method) + arguments)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _table(fields: Mapping[str, str]) -> bytes:
    return _long(b"".join(_short(name) + b"S" + _long(fields[name].encode()) for name in fields))
