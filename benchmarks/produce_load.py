"""The raw load generator: sends the same Produce request repeatedly, from one thread.

Each connection keeps a number of requests unanswered; for the responses of one read, it sends as
many requests in one call. So the generator costs one `recv` and one `send` for each piece that the
broker sends, whether that is one response or a thousand.
"""

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from benchmarks.bare_server import ACKNOWLEDGE, COUNT, Terms, read_total
from benchmarks.frames import ProduceFrame

RECEIVE_BYTES: Final = 256 * 1024
STREAM_BYTES: Final = 1024 * 1024
"""Bytes that an acks=0 connection passes to the socket at a time."""

RESPONSE_TIMEOUT_S: Final = 30.0

Address = tuple[str, int]

Target = tuple[Address, ProduceFrame]
"""The address of a broker, and the request to send."""


class Load(NamedTuple):
    """Connections, unanswered requests per connection, and duration."""

    connections: int
    in_flight: int
    seconds: float


class Sent(NamedTuple):
    """Requests that were sent and, except for acks=0, answered."""

    requests: int
    seconds: float


class LoadStuck(Exception):
    """Responses are missing."""


def produce(address: Address, request: ProduceFrame, load: Load, terms: bytes = b"") -> Sent:
    """Send `request` under `load`; count every response, and check one of each read.

    Raises:
        ErrorResponse: a response has an error code.
        LoadStuck: a response is missing.
    """
    return _produce([(address, request)] * load.connections, load, terms)


def produce_spread(targets: Sequence[Target], load: Load) -> Sent:
    """Send each request to its broker, on `load.connections` connections for each.

    Raises:
        ErrorResponse: a response has an error code.
        LoadStuck: a response is missing.
    """
    return _produce([target for target in targets for _ in range(load.connections)], load)


def _produce(targets: Sequence[Target], load: Load, terms: bytes = b"") -> Sent:
    """One connection for each of `targets`."""
    cycles = {request: memoryview(request.frame * load.in_flight) for _, request in targets}
    with _connections([address for address, _ in targets], terms) as socks:
        flows = [
            _Flow(sock, request, cycles[request], is_checked=not terms)
            for sock, (_, request) in zip(socks, targets, strict=True)
        ]
        start = time.perf_counter()
        _run(flows, start + load.seconds)
        return Sent(sum(flow.responses for flow in flows), time.perf_counter() - start)


def stream(address: Address, request: ProduceFrame, probe: ProduceFrame, load: Load) -> Sent:
    """Send `request`, which has acks=0, and at the end `probe`, which has acks=1, per connection.

    A broker responds in order, so the responses to the probes confirm all requests.
    """
    with _connections([address] * load.connections) as socks:
        start = time.perf_counter()
        requests = _stream(socks, request, start + load.seconds)
        for sock in socks:
            sock.sendall(probe.frame)
        for sock in socks:
            probe.base_offset(sock.recv(probe.response_bytes, socket.MSG_WAITALL))
        return Sent(requests, time.perf_counter() - start)


def produce_bare(address: Address, request: ProduceFrame, load: Load) -> Sent:
    """Exchange the same bytes as `produce`, with a bare server."""
    terms = Terms(ACKNOWLEDGE, len(request.frame), request.response_bytes)
    return produce(address, request, load, terms.encode())


def stream_bare(address: Address, request: ProduceFrame, load: Load) -> Sent:
    """Send the same bytes as `stream`, to a bare server that counts them."""
    with _connections([address] * load.connections, Terms(COUNT, 1, 0).encode()) as socks:
        start = time.perf_counter()
        requests = _stream(socks, request, start + load.seconds)
        for sock in socks:
            sock.shutdown(socket.SHUT_WR)
        total = sum(read_total(sock) for sock in socks)
        assert total == requests * len(request.frame), (total, requests)
        return Sent(requests, time.perf_counter() - start)


def send_once(address: Address, request: ProduceFrame) -> int:
    """Send one request; return the base offset of its batch."""
    with socket.create_connection(address) as sock:
        sock.sendall(request.frame)
        return request.base_offset(sock.recv(request.response_bytes, socket.MSG_WAITALL))


class _Flow:
    """One connection that keeps as many requests unanswered as `cycle` contains."""

    def __init__(
        self, sock: socket.socket, request: ProduceFrame, cycle: memoryview, *, is_checked: bool
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.responses = 0
        self._request = request
        self._is_checked = is_checked
        self._cycle = cycle
        self._position = 0
        self._unsent_bytes = len(cycle)
        self._requested = len(cycle) // len(request.frame)
        self._received_bytes = 0
        self.send()

    @property
    def is_done(self) -> bool:
        return self.responses == self._requested

    def send(self) -> bool:
        """Send the pending bytes; false when the socket is full."""
        while self._unsent_bytes:
            end = self._position + self._unsent_bytes
            try:
                sent = self.sock.send(self._cycle[self._position : end])
            except BlockingIOError:
                return False
            self._unsent_bytes -= sent
            self._position = (self._position + sent) % len(self._cycle)
        return True

    def receive(self, *, is_running: bool) -> None:
        """Count responses and, while the load runs, schedule as many further requests."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise LoadStuck(f"the connection was closed after {self.responses} responses")
        size = self._request.response_bytes
        self._check(data, -self._received_bytes % size)
        self._received_bytes += len(data)
        responses = self._received_bytes // size
        if is_running:
            self._unsent_bytes += (responses - self.responses) * len(self._request.frame)
            self._requested += responses - self.responses
        self.responses = responses

    def _check(self, data: bytes, first_at: int) -> None:
        if self._is_checked and first_at + self._request.response_bytes <= len(data):
            self._request.base_offset(memoryview(data)[first_at:])


def _run(flows: Sequence[_Flow], deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        for flow in flows:
            selector.register(flow.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, flow)
        unfinished = len(flows)
        while unfinished:
            ready = selector.select(RESPONSE_TIMEOUT_S)
            if not ready:
                raise LoadStuck(f"{unfinished} connections wait for responses")
            is_running = time.perf_counter() < deadline
            unfinished -= sum(_serve(selector, key, events, is_running) for key, events in ready)


def _serve(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int, is_running: bool
) -> bool:
    """Receive and send on one connection; return whether it is done."""
    flow: _Flow = key.data
    if events & selectors.EVENT_READ:
        flow.receive(is_running=is_running)
    waits_for = selectors.EVENT_READ | (0 if flow.send() else selectors.EVENT_WRITE)
    if flow.is_done and not is_running:
        selector.unregister(flow.sock)
        return True
    if waits_for != key.events:
        selector.modify(flow.sock, waits_for, flow)
    return False


def _stream(socks: Sequence[socket.socket], request: ProduceFrame, deadline: float) -> int:
    """Send as much as every socket accepts until the deadline; return the requests sent."""
    size = len(request.frame)
    cycle = memoryview(request.frame * (STREAM_BYTES // size + 1))
    positions = dict.fromkeys(socks, 0)
    sent_bytes = 0
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_WRITE, sock)
        while time.perf_counter() < deadline:
            for key, _ in selector.select():
                sock = key.data
                sent = sock.send(cycle[positions[sock] :])
                positions[sock] = (positions[sock] + sent) % len(cycle)
                sent_bytes += sent
    for sock in socks:
        sock.setblocking(True)
        rest = -positions[sock] % size
        sock.sendall(cycle[positions[sock] : positions[sock] + rest])
        sent_bytes += rest
    return sent_bytes // size


@contextmanager
def _connections(addresses: Sequence[Address], terms: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(each)) for each in addresses]
        for sock in socks:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(terms)
        yield socks
