"""RabbitMQ's streams over their binary protocol: Publish with batches, Subscribe with credit.

Source: RabbitMQ, "Stream Protocol Reference", version 1 of all commands.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.frames import MESSAGE, MESSAGE_BYTES
from benchmarks.peers.exchange import (
    Consumer,
    ErrorAnswer,
    MessageCounter,
    Producer,
    Received,
    SizedFrames,
)
from benchmarks.peers.peer import Peer, RunningPeer, connect
from benchmarks.peers.rabbitmq_server import PASSWORD, USER, RabbitServer, rabbit_server

CREDIT: Final = 10
"""Chunks that the broker may send ahead: what its clients in Java and Go ask for."""

_VERSION: Final = 1
_OK: Final = 1
_CORRELATION: Final = 1
_RESPONSE: Final = 0x8000
_ID: Final = 0
"""Of the publisher, of the subscription, and of every message: confirmations are only counted."""

_FIRST: Final = 1
"""The offset type: from the first message of the stream."""

_DECLARE_PUBLISHER, _PUBLISH, _PUBLISH_CONFIRM = 0x01, 0x02, 0x03
_SUBSCRIBE, _DELIVER, _CREDIT_KEY = 0x07, 0x08, 0x09
_CREATE: Final = 0x0D
_PEER_PROPERTIES, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 0x11, 0x12, 0x13
_TUNE, _OPEN, _HEARTBEAT = 0x14, 0x15, 0x17

_HEAD: Final = struct.Struct(">IHH")
"""Size, key, version."""

_NONE: Final = struct.pack(">i", 0)
"""An empty array or map."""

_SECTION: Final = b"\x00\x53\x75\xa0%c%s" % (MESSAGE_BYTES, MESSAGE)
"""The message as stream clients encode it: the data section of an AMQP 1.0 message."""


def command(key: int, content: bytes) -> bytes:
    """Return an encoded command without a response."""
    return _HEAD.pack(len(content) + 4, key, _VERSION) + content


def request(key: int, content: bytes) -> bytes:
    """Return an encoded command with a response."""
    return command(key, struct.pack(">I", _CORRELATION) + content)


def publish(batch: int) -> bytes:
    """Return the command that publishes `batch` messages."""
    one = struct.pack(">QI", _ID, len(_SECTION)) + _SECTION
    return command(_PUBLISH, struct.pack(">BI", _ID, batch) + one * batch)


class PublishConfirms:
    """Counts the messages whose ids the broker confirms."""

    def __init__(self) -> None:
        self._frames = SizedFrames()

    def receive(self, data: bytes) -> Received:
        """Count the ids of complete confirmations.

        Raises:
            ErrorAnswer: the broker sent something else.
        """
        messages = 0
        for frame in self._frames.split(data):
            _, key, _ = _HEAD.unpack_from(frame)
            if key == _PUBLISH_CONFIRM:
                messages += struct.unpack_from(">I", frame, _HEAD.size + 1)[0]
            elif key != _HEARTBEAT:
                raise ErrorAnswer(f"no confirmation: {bytes(frame)!r}")
        return Received(messages)


class Chunks:
    """Counts the messages of delivered chunks, and gives credit for as many chunks."""

    def __init__(self) -> None:
        self._frames = SizedFrames()
        self._counter = MessageCounter()

    def receive(self, data: bytes) -> Received:
        """Count the messages that end in `data`.

        Raises:
            ErrorAnswer: the broker rejected the subscription.
        """
        chunks = 0
        for frame in self._frames.split(data):
            _, key, _ = _HEAD.unpack_from(frame)
            if key == _RESPONSE | _SUBSCRIBE:
                _check(frame)
            chunks += key == _DELIVER
        credit = command(_CREDIT_KEY, struct.pack(">BH", _ID, chunks)) if chunks else b""
        return Received(self._counter.count(data), credit)


class Session:
    """An authenticated connection of the stream protocol."""

    def __init__(self, sock: socket.socket, user: bytes, password: bytes) -> None:
        self.sock = sock
        self.call(_PEER_PROPERTIES, _NONE)
        self.call(_SASL_HANDSHAKE, b"")
        plain = b"\0%s\0%s" % (user, password)
        self.call(_SASL_AUTHENTICATE, _text("PLAIN") + struct.pack(">I", len(plain)) + plain)
        while (frame := self._frame())[1] != _TUNE:
            pass
        frame_bytes, _ = struct.unpack_from(">II", frame[0], _HEAD.size)
        sock.sendall(command(_TUNE, struct.pack(">II", frame_bytes, 0)))  # no heartbeats
        self.call(_OPEN, _text("/"))

    def create(self, stream: str) -> None:
        """Create a stream with the broker's default settings."""
        self.call(_CREATE, _text(stream) + _NONE)

    def declare_publisher(self, stream: str) -> None:
        """Open a publisher without a name, whose message ids the broker does not compare."""
        self.call(_DECLARE_PUBLISHER, struct.pack(">B", _ID) + _text("") + _text(stream))

    def call(self, key: int, content: bytes) -> None:
        """Send a request, and wait for its response.

        Raises:
            ErrorAnswer: the broker rejected it.
        """
        self.sock.sendall(request(key, content))
        while True:
            frame, answered = self._frame()
            if answered == _RESPONSE | key:
                return _check(frame)

    def _frame(self) -> tuple[memoryview, int]:
        """Return the next frame, and its key."""
        size = self.sock.recv(4, socket.MSG_WAITALL)
        content = self.sock.recv(int.from_bytes(size), socket.MSG_WAITALL)
        if not content:
            raise ErrorAnswer("the broker closed the connection")
        frame = memoryview(size + content)
        return frame, _HEAD.unpack_from(frame)[1]


def _check(response: memoryview) -> None:
    code = struct.unpack_from(">H", response, _HEAD.size + 4)[0]
    if code != _OK:
        raise ErrorAnswer(f"response code {code}: {bytes(response)!r}")


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


class _Stream(RunningPeer):
    def __init__(self, server: RabbitServer) -> None:
        super().__init__(server.process, server.data_dir)
        self.version = server.version
        self._port = server.stream_port

    def create_log(self, name: str) -> None:
        with connect(self._port) as sock:
            Session(sock, USER, PASSWORD).create(name)

    def producer(self, name: str, batch: int) -> Producer:
        session = Session(connect(self._port), USER, PASSWORD)
        session.declare_publisher(name)
        return Producer(session.sock, publish(batch), batch, PublishConfirms())

    def consumer(self, name: str, batch: int, messages: int) -> Consumer:  # noqa: ARG002
        session = Session(connect(self._port), USER, PASSWORD)
        content = struct.pack(">B", _ID) + _text(name)
        content += struct.pack(">HH", _FIRST, CREDIT) + _NONE
        return Consumer(session.sock, request(_SUBSCRIBE, content), Chunks())


@contextmanager
def _stream(folder: Path) -> Iterator[RunningPeer]:
    with rabbit_server(folder) as server:
        yield _Stream(server)


STREAM: Final = Peer(
    "rabbitmq-stream",
    "RabbitMQ, stream",
    batches=(1, 50),
    is_flushed=False,
    settings="one replica, stream protocol, defaults: it leaves flushes to the kernel",
    run=_stream,
)
