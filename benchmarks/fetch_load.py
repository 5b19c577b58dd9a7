"""Raw fetches: consumers that read a log from its start, over and over, without decoding it."""

import random
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.bare_server import SERVE_FILE, Terms
from benchmarks.frames import FetchFrames
from benchmarks.produce_load import Address, LoadStuck

SETTLE_S: Final = 30.0
ANSWER_HEAD_BYTES: Final = 1024
"""More than an answer has around its records."""

_SIZE: Final = struct.Struct(">i")


class StoredLog(NamedTuple):
    """A partition of equal batches: how to find the offset behind so many bytes of it."""

    topic: str
    partition: int
    batch_bytes: int
    batch_records: int
    end_offset: int


class Fetched(NamedTuple):
    """Bytes and whole answers that came."""

    payload_bytes: int
    answers: int
    seconds: float


NextRequest = Callable[[memoryview], bytes]
"""Checks a whole answer and gives the request that follows it."""

Conversation = tuple[Address, bytes, NextRequest]
"""One connection: where to, and its first request and those after it."""


def fetch(
    address: Address, log: StoredLog, bytes_max: int, connections: int, seconds: float
) -> Fetched:
    """Read in order, `bytes_max` a request and one request at a time on each connection.

    Raises:
        AnswerRefused: an answer has an error code or no records.
    """
    return fetch_spread([(address, log)], bytes_max, connections, seconds)


def fetch_spread(
    targets: Sequence[tuple[Address, StoredLog]], bytes_max: int, connections: int, seconds: float
) -> Fetched:
    """As `fetch`, with so many `connections` for each log, to the broker that has it.

    Raises:
        AnswerRefused: as `fetch`.
    """
    readers = [
        (address, _InOrder(log, bytes_max)) for address, log in targets for _ in range(connections)
    ]
    talks = [(address, reader.first(), reader.following) for address, reader in readers]
    return _run(talks, bytes_max, seconds)


def fetch_anywhere(
    address: Address, logs: Sequence[StoredLog], bytes_max: int, connections: int, seconds: float
) -> Fetched:
    """Read at random places of random logs.

    Raises:
        AnswerRefused: as `fetch`.
    """
    readers = [_Anywhere(logs, bytes_max) for _ in range(connections)]
    talks = [(address, reader.choose(), reader.following) for reader in readers]
    return _run(talks, bytes_max, seconds)


def fetch_bare(address: Address, bytes_max: int, connections: int, seconds: float) -> Fetched:
    """As many bytes a request from a bare server that does nothing but `sendfile`."""
    request = bytes(len(FetchFrames("bench", 0, bytes_max).at(0)))
    terms = Terms(SERVE_FILE, len(request), bytes_max + _SIZE.size).encode()
    talk: Conversation = (address, request, lambda _: request)
    return _run([talk] * connections, bytes_max, seconds, terms)


class _InOrder:
    def __init__(self, log: StoredLog, bytes_max: int) -> None:
        self._log = log
        self._frames = FetchFrames(log.topic, log.partition, bytes_max)
        self._bytes_max = bytes_max
        self._offset = 0

    def first(self) -> bytes:
        return self._frames.at(0)

    def following(self, answer: memoryview) -> bytes:
        found = self._frames.read(answer)
        if found.first_offset(answer) != self._offset:
            raise LoadStuck(f"asked for {self._offset}, got {found.first_offset(answer)}")
        batches = found.records_bytes // self._log.batch_bytes
        self._offset += batches * self._log.batch_records
        rest = (self._log.end_offset - self._offset) // self._log.batch_records
        if rest * self._log.batch_bytes < self._bytes_max:
            self._offset = 0
        return self._frames.at(self._offset)


class _Anywhere:
    def __init__(self, logs: Sequence[StoredLog], bytes_max: int) -> None:
        self._choices = [
            (FetchFrames(log.topic, log.partition, bytes_max), log.end_offset) for log in logs
        ]

    def choose(self) -> bytes:
        self._frames, end_offset = random.choice(self._choices)
        return self._frames.at(random.randrange(end_offset))

    def following(self, answer: memoryview) -> bytes:
        self._frames.read(answer)
        return self.choose()


class _Flow:
    """One connection with one request at a time."""

    def __init__(self, sock: socket.socket, following: NextRequest, bytes_max: int) -> None:
        self.sock = sock
        self.received_bytes = 0
        self.answers = 0
        self._following = following
        self._buffer = memoryview(bytearray(bytes_max + ANSWER_HEAD_BYTES))
        self._end = 0

    def receive(self) -> bytes | None:
        """Read once; the next request once the answer is whole."""
        count = self.sock.recv_into(self._buffer[self._end :])
        if not count:
            raise LoadStuck(f"the connection was closed after {self.answers} answers")
        self.received_bytes += count
        self._end += count
        if self._end < _SIZE.size:
            return None
        size = _SIZE.unpack_from(self._buffer)[0] + _SIZE.size
        if self._end < size:
            return None
        self.answers += 1
        self._end = 0
        return self._following(self._buffer[:size])


def _run(
    talks: Sequence[Conversation], bytes_max: int, seconds: float, terms: bytes = b""
) -> Fetched:
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        flows = []
        for address, request, following in talks:
            sock = stack.enter_context(socket.create_connection(address))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            flows.append(_Flow(sock, following, bytes_max))
            selector.register(sock, selectors.EVENT_READ, flows[-1])
            sock.sendall(terms + request)
        start = time.perf_counter()
        _turn_until(selector, start + seconds)
        elapsed_s = time.perf_counter() - start
    received_bytes = sum(flow.received_bytes for flow in flows)
    return Fetched(received_bytes, sum(flow.answers for flow in flows), elapsed_s)


def _turn_until(selector: selectors.BaseSelector, deadline: float) -> None:
    while time.perf_counter() < deadline:
        ready = selector.select(SETTLE_S)
        if not ready:
            raise LoadStuck("answers are missing")
        for key, _ in ready:
            request = key.data.receive()
            if request is not None:
                key.data.sock.sendall(request)
