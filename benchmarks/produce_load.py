"""The raw load generator: the same Produce request again and again, from one thread.

Each connection keeps so many requests unanswered; as answers come in, as many requests follow
in one send. So the generator's own cost is one `recv` and one `send` for whatever the broker
answered in one piece, whether that was one answer or a thousand.
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
"""How much an acks=0 connection offers the socket at a time."""

SETTLE_S: Final = 30.0

Address = tuple[str, int]

Target = tuple[Address, ProduceFrame]
"""A broker, and the request that it gets."""


class Load(NamedTuple):
    """How a request is sent."""

    connections: int
    in_flight: int
    seconds: float


class Sent(NamedTuple):
    """What was sent and, but for acks=0, answered."""

    requests: int
    seconds: float


class LoadStuck(Exception):
    """Answers are missing."""


def produce(address: Address, request: ProduceFrame, load: Load, terms: bytes = b"") -> Sent:
    """Send `request` under `load`; every answer is counted, and one of each read is checked.

    Raises:
        AnswerRefused: an answer has an error code.
        LoadStuck: an answer is missing.
    """
    return _produce([(address, request)] * load.connections, load, terms)


def produce_spread(targets: Sequence[Target], load: Load) -> Sent:
    """Send each request to its own broker, on `load.connections` connections for each.

    Raises:
        AnswerRefused: an answer has an error code.
        LoadStuck: an answer is missing.
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
        return Sent(sum(flow.answers for flow in flows), time.perf_counter() - start)


def stream(address: Address, request: ProduceFrame, probe: ProduceFrame, load: Load) -> Sent:
    """Send `request`, which has acks=0; on each connection `probe`, with acks=1, ends the stream.

    A broker answers in order, so the answers to the probes say that everything was handled.
    """
    with _connections([address] * load.connections) as socks:
        start = time.perf_counter()
        requests = _stream(socks, request, start + load.seconds)
        for sock in socks:
            sock.sendall(probe.frame)
        for sock in socks:
            probe.base_offset(sock.recv(probe.answer_bytes, socket.MSG_WAITALL))
        return Sent(requests, time.perf_counter() - start)


def produce_bare(address: Address, request: ProduceFrame, load: Load) -> Sent:
    """The same bytes both ways as `produce`, with a bare server."""
    terms = Terms(ACKNOWLEDGE, len(request.frame), request.answer_bytes)
    return produce(address, request, load, terms.encode())


def stream_bare(address: Address, request: ProduceFrame, load: Load) -> Sent:
    """The same bytes as `stream`, to a bare server that counts them."""
    with _connections([address] * load.connections, Terms(COUNT, 1, 0).encode()) as socks:
        start = time.perf_counter()
        requests = _stream(socks, request, start + load.seconds)
        for sock in socks:
            sock.shutdown(socket.SHUT_WR)
        total = sum(read_total(sock) for sock in socks)
        assert total == requests * len(request.frame), (total, requests)
        return Sent(requests, time.perf_counter() - start)


def send_once(address: Address, request: ProduceFrame) -> int:
    """Send one request; the base offset its batch got."""
    with socket.create_connection(address) as sock:
        sock.sendall(request.frame)
        return request.base_offset(sock.recv(request.answer_bytes, socket.MSG_WAITALL))


class _Flow:
    """One connection that keeps as many equal requests unanswered as `cycle` holds."""

    def __init__(
        self, sock: socket.socket, request: ProduceFrame, cycle: memoryview, *, is_checked: bool
    ) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.answers = 0
        self._request = request
        self._is_checked = is_checked
        self._cycle = cycle
        self._position = 0
        self._owed_bytes = len(cycle)
        self._asked = len(cycle) // len(request.frame)
        self._received_bytes = 0
        self.send()

    @property
    def is_settled(self) -> bool:
        return self.answers == self._asked

    def send(self) -> bool:
        """Send what is owed; false when the socket is full."""
        while self._owed_bytes:
            end = self._position + self._owed_bytes
            try:
                sent = self.sock.send(self._cycle[self._position : end])
            except BlockingIOError:
                return False
            self._owed_bytes -= sent
            self._position = (self._position + sent) % len(self._cycle)
        return True

    def receive(self, *, goes_on: bool) -> None:
        """Count answers and, if the load goes on, owe as many requests more."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise LoadStuck(f"the connection was closed after {self.answers} answers")
        size = self._request.answer_bytes
        self._check(data, -self._received_bytes % size)
        self._received_bytes += len(data)
        answers = self._received_bytes // size
        if goes_on:
            self._owed_bytes += (answers - self.answers) * len(self._request.frame)
            self._asked += answers - self.answers
        self.answers = answers

    def _check(self, data: bytes, first_at: int) -> None:
        if self._is_checked and first_at + self._request.answer_bytes <= len(data):
            self._request.base_offset(memoryview(data)[first_at:])


def _run(flows: Sequence[_Flow], deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        for flow in flows:
            selector.register(flow.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, flow)
        unsettled = len(flows)
        while unsettled:
            ready = selector.select(SETTLE_S)
            if not ready:
                raise LoadStuck(f"{unsettled} connections wait for answers")
            goes_on = time.perf_counter() < deadline
            unsettled -= sum(_serve(selector, key, events, goes_on) for key, events in ready)


def _serve(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int, goes_on: bool
) -> bool:
    """Receive and send on one connection; whether that settled it."""
    flow: _Flow = key.data
    if events & selectors.EVENT_READ:
        flow.receive(goes_on=goes_on)
    waits_for = selectors.EVENT_READ | (0 if flow.send() else selectors.EVENT_WRITE)
    if flow.is_settled and not goes_on:
        selector.unregister(flow.sock)
        return True
    if waits_for != key.events:
        selector.modify(flow.sock, waits_for, flow)
    return False


def _stream(socks: Sequence[socket.socket], request: ProduceFrame, deadline: float) -> int:
    """Offer every socket as much as it takes until the time is over; whole requests sent."""
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
