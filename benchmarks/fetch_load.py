"""The raw fetch generator: reads a log repeatedly from its start, without decoding records."""

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

RESPONSE_TIMEOUT_S: Final = 30.0
RESPONSE_HEADER_BYTES: Final = 1024
"""More than the size of a response without its records."""

_SIZE: Final = struct.Struct(">i")


class StoredLog(NamedTuple):
    """A partition of equal batches, so that an offset follows from a number of bytes."""

    topic: str
    partition: int
    batch_bytes: int
    batch_records: int
    end_offset: int


class Fetched(NamedTuple):
    """Received bytes and complete responses."""

    payload_bytes: int
    responses: int
    seconds: float


NextRequest = Callable[[memoryview], bytes]
"""Checks a complete response and returns the next request."""

Conversation = tuple[Address, bytes, NextRequest]
"""The address of one connection, its first request, and the function for the next ones."""


def fetch(
    address: Address, log: StoredLog, bytes_max: int, connections: int, seconds: float
) -> Fetched:
    """Read in order, `bytes_max` per request and one request at a time on each connection.

    Raises:
        ErrorResponse: a response has an error code or no records.
    """
    return fetch_spread([(address, log)], bytes_max, connections, seconds)


def fetch_spread(
    targets: Sequence[tuple[Address, StoredLog]], bytes_max: int, connections: int, seconds: float
) -> Fetched:
    """As `fetch`, with `connections` for each log to the broker that has it.

    Raises:
        ErrorResponse: as `fetch`.
    """
    readers = [
        (address, _SequentialReader(log, bytes_max))
        for address, log in targets
        for _ in range(connections)
    ]
    conversations = [
        (address, reader.first_request(), reader.next_request) for address, reader in readers
    ]
    return _run(conversations, bytes_max, seconds)


def fetch_at_random(
    address: Address, logs: Sequence[StoredLog], bytes_max: int, connections: int, seconds: float
) -> Fetched:
    """Read at random offsets of random logs.

    Raises:
        ErrorResponse: as `fetch`.
    """
    readers = [_RandomReader(logs, bytes_max) for _ in range(connections)]
    conversations = [(address, reader.random_request(), reader.next_request) for reader in readers]
    return _run(conversations, bytes_max, seconds)


def fetch_bare(address: Address, bytes_max: int, connections: int, seconds: float) -> Fetched:
    """Read the same number of bytes per request from a bare server that only calls `sendfile`."""
    request = bytes(len(FetchFrames("bench", 0, bytes_max).encode_request(0)))
    terms = Terms(SERVE_FILE, len(request), bytes_max + _SIZE.size).encode()
    conversation: Conversation = (address, request, lambda _: request)
    return _run([conversation] * connections, bytes_max, seconds, terms)


class _SequentialReader:
    def __init__(self, log: StoredLog, bytes_max: int) -> None:
        self._log = log
        self._frames = FetchFrames(log.topic, log.partition, bytes_max)
        self._bytes_max = bytes_max
        self._offset = 0

    def first_request(self) -> bytes:
        return self._frames.encode_request(0)

    def next_request(self, response: memoryview) -> bytes:
        found = self._frames.find_records(response)
        if found.first_offset(response) != self._offset:
            raise LoadStuck(f"requested {self._offset}, got {found.first_offset(response)}")
        batches = found.records_bytes // self._log.batch_bytes
        self._offset += batches * self._log.batch_records
        rest = (self._log.end_offset - self._offset) // self._log.batch_records
        if rest * self._log.batch_bytes < self._bytes_max:
            self._offset = 0
        return self._frames.encode_request(self._offset)


class _RandomReader:
    def __init__(self, logs: Sequence[StoredLog], bytes_max: int) -> None:
        self._choices = [
            (FetchFrames(log.topic, log.partition, bytes_max), log.end_offset) for log in logs
        ]

    def random_request(self) -> bytes:
        self._frames, end_offset = random.choice(self._choices)
        return self._frames.encode_request(random.randrange(end_offset))

    def next_request(self, response: memoryview) -> bytes:
        self._frames.find_records(response)
        return self.random_request()


class _Flow:
    """One connection with one request at a time."""

    def __init__(self, sock: socket.socket, next_request: NextRequest, bytes_max: int) -> None:
        self.sock = sock
        self.received_bytes = 0
        self.responses = 0
        self._next_request = next_request
        self._buffer = memoryview(bytearray(bytes_max + RESPONSE_HEADER_BYTES))
        self._end = 0

    def receive(self) -> bytes | None:
        """Read once; return the next request once the response is complete."""
        count = self.sock.recv_into(self._buffer[self._end :])
        if not count:
            raise LoadStuck(f"the connection was closed after {self.responses} responses")
        self.received_bytes += count
        self._end += count
        if self._end < _SIZE.size:
            return None
        size = _SIZE.unpack_from(self._buffer)[0] + _SIZE.size
        if self._end < size:
            return None
        self.responses += 1
        self._end = 0
        return self._next_request(self._buffer[:size])


def _run(
    conversations: Sequence[Conversation], bytes_max: int, seconds: float, terms: bytes = b""
) -> Fetched:
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        flows = []
        for address, request, next_request in conversations:
            sock = stack.enter_context(socket.create_connection(address))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            flows.append(_Flow(sock, next_request, bytes_max))
            selector.register(sock, selectors.EVENT_READ, flows[-1])
            sock.sendall(terms + request)
        start = time.perf_counter()
        _run_until(selector, start + seconds)
        elapsed_s = time.perf_counter() - start
    received_bytes = sum(flow.received_bytes for flow in flows)
    return Fetched(received_bytes, sum(flow.responses for flow in flows), elapsed_s)


def _run_until(selector: selectors.BaseSelector, deadline: float) -> None:
    while time.perf_counter() < deadline:
        ready = selector.select(RESPONSE_TIMEOUT_S)
        if not ready:
            raise LoadStuck("responses are missing")
        for key, _ in ready:
            request = key.data.receive()
            if request is not None:
                key.data.sock.sendall(request)
