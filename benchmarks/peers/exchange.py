"""Raw clients of one connection: encoded requests, sent again and again, and counted answers.

A client library in Python would measure itself. So every broker of the comparison has the same
client, which moves bytes; only the encoded request and the class that counts the answers differ.
One `recv` handles whatever the broker has sent, as in `produce_load`.
"""

import select
import socket
import time
from typing import Final, NamedTuple, Protocol

from benchmarks.frames import MESSAGE
from benchmarks.produce_load import RECEIVE_BYTES, RESPONSE_TIMEOUT_S, LoadStuck

CYCLE_BYTES: Final = 2**20
"""The least number of bytes of repeated requests from which a producer sends."""

SAMPLE_S: Final = 0.01
"""The least time between two points of `Progress`."""

MESSAGE_END: Final = MESSAGE[-16:]
"""The bytes by which a consumer counts messages. No part of them is repeated in a message."""

_LENGTH: Final = 4


class ErrorAnswer(Exception):
    """The broker rejected a request; the message has its answer."""


class Received(NamedTuple):
    """What some received bytes mean: messages, and the bytes to send for them."""

    messages: int
    reply: bytes = b""


class Answers(Protocol):
    """Counts the messages that a broker acknowledges to a producer, or sends to a consumer."""

    def receive(self, data: bytes) -> Received:
        """Count the messages that the next bytes of the connection complete.

        Raises:
            ErrorAnswer: the broker reports an error.
        """


class Producer(NamedTuple):
    """A connection, an encoded request with `batch` messages, and what counts its answers."""

    sock: socket.socket
    request: bytes
    batch: int
    answers: Answers


class Consumer(NamedTuple):
    """A connection, the first request, and what counts messages and encodes further requests."""

    sock: socket.socket
    request: bytes
    answers: Answers


class Limit(NamedTuple):
    """The messages of a run; a broker that is slower than that stops after some seconds."""

    messages: int
    seconds: float


class Progress(NamedTuple):
    """Pairs of seconds since the start and messages so far; the first is (0, 0)."""

    points: tuple[tuple[float, int], ...]

    @property
    def messages(self) -> int:
        """All messages."""
        return self.points[-1][1]

    @property
    def seconds(self) -> float:
        """The time of the last message."""
        return self.points[-1][0]

    @property
    def rate(self) -> float:
        """Messages per second over the whole run."""
        return self.messages / self.seconds


class _Samples:
    """Collects the points of `Progress` while a run lasts."""

    def __init__(self) -> None:
        self._points = [(0.0, 0)]
        self._start = time.perf_counter()

    def add(self, messages: int, *, is_last: bool) -> float:
        """Add a point unless one was added just before; return the seconds since the start."""
        now = time.perf_counter() - self._start
        if is_last or now - self._points[-1][0] >= SAMPLE_S:
            self._points.append((now, messages))
        return now

    def progress(self) -> Progress:
        return Progress(tuple(self._points))


def produce(producer: Producer, limit: Limit, in_flight: int) -> Progress:
    """Send requests, up to `in_flight` of them unanswered, and wait for the answers of all.

    Raises:
        ErrorAnswer: the broker rejected a request.
        LoadStuck: answers are missing.
    """
    sock, size = producer.sock, len(producer.request)
    sock.setblocking(False)
    cycle = memoryview(producer.request * (CYCLE_BYTES // size + 1))
    requests = limit.messages // producer.batch
    samples, messages, sent_bytes = _Samples(), 0, 0
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while messages < requests * producer.batch:
        permitted = min(requests, messages // producer.batch + in_flight) * size
        sent_bytes = _send(sock, cycle, sent_bytes, permitted)
        wanted = select.POLLIN | (select.POLLOUT if sent_bytes < permitted else 0)
        poll.modify(sock, wanted)
        ready = poll.poll(RESPONSE_TIMEOUT_S * 1e3)
        if not ready:
            raise LoadStuck(f"{messages} messages were acknowledged, then no more")
        if not ready[0][1] & ~select.POLLOUT:
            continue
        received = producer.answers.receive(_receive(sock))
        sock.sendall(received.reply)
        messages += received.messages
        elapsed_s = samples.add(messages, is_last=messages >= requests * producer.batch)
        if elapsed_s > limit.seconds:
            # Only the requests that have been started are still sent to their end.
            requests = min(requests, -(-sent_bytes // size))
    samples.add(messages, is_last=True)
    return samples.progress()


def consume(consumer: Consumer, limit: Limit) -> Progress:
    """Receive messages until the limit.

    Raises:
        ErrorAnswer: the broker rejected a request.
        LoadStuck: messages are missing.
    """
    sock = consumer.sock
    sock.settimeout(RESPONSE_TIMEOUT_S)
    samples, messages = _Samples(), 0
    sock.sendall(consumer.request)
    while messages < limit.messages:
        try:
            data = _receive(sock)
        except TimeoutError as error:
            raise LoadStuck(f"{messages} messages arrived, then no more") from error
        received = consumer.answers.receive(data)
        sock.sendall(received.reply)
        messages += received.messages
        if samples.add(messages, is_last=False) > limit.seconds:
            break
    samples.add(messages, is_last=True)
    return samples.progress()


def _send(sock: socket.socket, cycle: memoryview, sent_bytes: int, end_bytes: int) -> int:
    """Send the repeated requests up to a position, or until the socket is full."""
    while sent_bytes < end_bytes:
        position = sent_bytes % len(cycle)
        try:
            sent_bytes += sock.send(cycle[position : position + end_bytes - sent_bytes])
        except BlockingIOError:
            break
    return sent_bytes


def _receive(sock: socket.socket) -> bytes:
    data = sock.recv(RECEIVE_BYTES)
    if not data:
        raise LoadStuck("the broker closed the connection")
    return data


class MessageCounter:
    """Counts the ends of messages in a stream of bytes, however it is cut."""

    def __init__(self) -> None:
        self._tail = b""

    def count(self, data: bytes) -> int:
        """Return how many messages end in the next bytes."""
        overlap = len(MESSAGE_END) - 1
        border = self._tail + data[:overlap]
        self._tail = (self._tail + data)[-overlap:] if len(data) < overlap else data[-overlap:]
        return border.count(MESSAGE_END) + data.count(MESSAGE_END)


class SizedFrames:
    """Cuts a stream of bytes into frames, each of which starts with its size as a uint32."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes) -> list[memoryview]:
        """Return the frames that the next bytes complete, with their sizes."""
        whole = memoryview(self._rest + data)
        frames, position = [], 0
        while len(whole) - position >= _LENGTH:
            end = position + _LENGTH + int.from_bytes(whole[position : position + _LENGTH])
            if end > len(whole):
                break
            frames.append(whole[position:end])
            position = end
        self._rest = bytes(whole[position:])
        return frames


class Lines:
    """Cuts a stream of bytes after its last line feed."""

    def __init__(self) -> None:
        self._rest = b""

    def complete(self, data: bytes) -> bytes:
        """Return all complete lines that were not returned before."""
        whole = self._rest + data
        end = whole.rfind(b"\n") + 1
        self._rest = whole[end:]
        return whole[:end]
