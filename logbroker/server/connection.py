"""One client connection: receives requests, sends responses in order, and enforces limits."""

import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from logbroker.errors import ProtocolViolation
from logbroker.quotas.meters import ClientMeters
from logbroker.records.file_span import FileSpan
from logbroker.security.principal import ANONYMOUS, Principal
from logbroker.server.loop import READ, WRITE, SocketLoop, Timer
from logbroker.server.metrics.counters import Counters
from logbroker.server.request_memory import RequestMemory
from logbroker.server.worker_pool import WorkerPool
from logbroker.storage.segment_file import copy_small_spans, is_cached, load_into_cache
from logbroker.wire.produce import ProduceDecoder
from logbroker.wire.receive_buffer import ReceiveBuffer
from logbroker.wire.response_queue import ResponseQueue

log = logging.getLogger("logbroker.connection")

SEND_BYTES_PER_TURN: Final = 4 * 2**20
"""One connection sends at most this much before the loop serves others."""

SEND_BYTES_MIN: Final = 16 * 1024
"""What a smaller send counts as: many small spans take as long as a few large ones."""

SPAN_CHUNK_BYTES: Final = 1024 * 1024
"""The maximum of one `sendfile`, and of one read of uncached data."""

GATHER_BYTES: Final = 256 * 1024
"""Small responses are joined into one send up to about this size."""

OUTPUT_BYTES_MAX: Final = 8 * 2**20
"""The limit of unsent responses in memory; above it no requests are read."""

Part = bytes | FileSpan


def host_of(peer: str) -> str:
    """Return the address in `ADDRESS:PORT`; an IPv4 address in IPv6 form becomes plain IPv4."""
    return peer.rpartition(":")[0].removeprefix("::ffff:")


class DelayedRequest(Protocol):
    """A request whose response waits for an event, such as a flush or a rebalance."""

    def abandon(self) -> None:
        """Stop waiting: the connection is closed."""


class Gate(Protocol):
    """Lets only authentication pass until the client is authenticated."""

    def is_closed_to(self, view: memoryview, frames: list[tuple[int, int]], /) -> bool:
        """Return whether any of the frames must pass `admit`."""

    def admit(self, frame: memoryview, /) -> bool:
        """Handle a frame of authentication, or return whether it may be served."""


class ShutGate:
    """The gate of a closed connection: it lets nothing pass, and keeps nothing in memory."""

    def is_closed_to(self, _view: memoryview, _frames: list[tuple[int, int]], /) -> bool:
        """Return True."""
        return True

    def admit(self, _frame: memoryview, /) -> bool:
        """Return False."""
        return False


class Dispatcher(Protocol):
    """Handles the frames that a connection has received."""

    def dispatch(self, connection: "Connection", frames: list[tuple[int, int]]) -> None:
        """Handle whole frames, which are ranges of `connection.buffer.view()`."""


class RequestLimits(NamedTuple):
    """Limits of a connection: the size of a request, requests without a response, and memory."""

    request_bytes_max: int
    requests_in_flight_max: int
    memory: RequestMemory


class ConnectionOrigin(NamedTuple):
    """Where a connection comes from: the client's address with port, and the listener's name."""

    peer: str
    listener: str


class Connection:
    """A socket with its receive buffer and its response queue.

    Handlers add a pending response per request and complete it at once or later. Responses are
    sent in the order of their requests. Reading pauses while too many responses are pending.
    """

    def __init__(
        self,
        sock: socket.socket,
        origin: ConnectionOrigin,
        loop: SocketLoop,
        read_pool: WorkerPool,
        dispatcher: Dispatcher,
        counters: Counters,
        limits: RequestLimits,
        on_close: Callable[["Connection"], None],
    ) -> None:
        self.peer = origin.peer
        self.listener = origin.listener
        self.client_host = host_of(origin.peer)
        self.principal: Principal = ANONYMOUS
        self._memory = limits.memory
        self.buffer = ReceiveBuffer(
            frame_bytes_max=limits.request_bytes_max, budget=limits.memory.budget
        )
        self.readable_topics: set[str] = set()
        """Topics that the client may read; cleared when ACLs change."""
        self.responses = ResponseQueue()
        self.produce_decoder = ProduceDecoder()
        self.delayed: set[DelayedRequest] = set()
        """Abandoned at close, so that their timers do not keep the connection alive."""
        self.client_id: str | None = None
        self.gate: Gate | None = None
        self.meters: ClientMeters | None = None
        """The meters of its quotas; None without any, which is the usual case."""
        self.is_open = True
        self.last_active_s = loop.now_s
        self._sock = sock
        self._loop = loop
        self._read_pool = read_pool
        self._dispatcher = dispatcher
        self._counters = counters
        self._in_flight_max = limits.requests_in_flight_max
        self._on_close = on_close
        self._output: deque[Part | memoryview] = deque()
        self._output_bytes = 0
        self._has_received = False
        self._is_loading = False
        self._is_blocked = False
        self._is_postponed = False
        self._is_held = False
        self._is_resuming = False
        self._unmute: Timer | None = None
        self._events = READ
        loop.register(sock, READ, self._handle_events)

    def postpone_frames(self, start: int) -> None:
        """Handle the frames from `start` on in a later turn, before more bytes are read."""
        self.buffer.return_frames(start)
        self._is_postponed = True

    def hold_frames(self, start: int) -> None:
        """Handle the frames from `start` on after `release_frames`, not in the next turn.

        Until then, the bytes before them stay where they are.
        """
        self.postpone_frames(start)
        self._is_held = True

    @property
    def is_holding(self) -> bool:
        """Whether frames wait for `release_frames`."""
        return self._is_held

    def release_frames(self) -> None:
        """Handle the held frames in a later turn."""
        self._is_held = False
        if self.is_open:
            self._update_events()

    @property
    def now_s(self) -> float:
        """The monotonic time of the loop's turn."""
        return self._loop.now_s

    @property
    def is_muted(self) -> bool:
        """Whether requests wait because of a quota."""
        return self._unmute is not None

    def mute(self, seconds: float) -> None:
        """Receive and handle no request for a time (KIP-219); responses are still sent."""
        until_s = self._loop.now_s + seconds
        if not self.is_open or (self._unmute is not None and self._unmute.when_s >= until_s):
            return
        self._cancel_mute()
        self._unmute = self._loop.call_at(until_s, self.unmute)
        self._counters.connections_muted += 1

    def unmute(self) -> None:
        """Receive and handle requests again."""
        if self._unmute is not None and self.is_open:
            self._cancel_mute()
            self._update_events()

    def _cancel_mute(self) -> None:
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
            self._counters.connections_muted -= 1

    def fail_request(self, error: Exception) -> None:
        """Close the connection, because a request cannot be handled."""
        if isinstance(error, ProtocolViolation):
            self._counters.connections_protocol_errors += 1
            self.close(str(error))
        else:
            # A defect of the broker closes only the connection of the request.
            log.error("request failed peer=%s client=%r", self.peer, self.client_id, exc_info=error)
            self.close("internal error")

    def forget_permissions(self) -> None:
        """Check the topics of later requests again, because the ACLs have changed."""
        self.readable_topics.clear()
        self.produce_decoder.forget_all_partitions()

    def forget_quotas(self) -> None:
        """Look up the quotas of later requests again, and end the throttling by those before."""
        self.meters = None
        self.unmute()

    def close(self, reason: str | None = None) -> None:
        """Close the socket; a `reason` is logged, None is an ordinary disconnect."""
        if not self.is_open:
            return
        self.is_open = False
        if reason is not None:
            log.warning("closed peer=%s client=%r reason=%s", self.peer, self.client_id, reason)
        self._loop.unregister(self._sock)
        with contextlib.suppress(OSError):
            self._sock.close()
        self._output.clear()
        # Its templates reference partitions and would keep files of deleted topics open.
        self.produce_decoder = ProduceDecoder()
        for request in list(self.delayed):
            request.abandon()
        # A gate references its connection: only a garbage collection would free the two.
        self.delayed.clear()
        if self.gate is not None:
            self.gate = ShutGate()
        self._cancel_mute()
        self._memory.remove_waiting(self)
        self.buffer.release()
        self._on_close(self)

    def finish_turn(self) -> None:
        """Compact the receive buffer and send complete responses, at the end of a turn."""
        if not self.is_open:
            return
        if self._has_received and not self._is_held:
            self._has_received = False
            self.buffer.compact()
            # Frames that are handled later need no memory, but leave some of it free.
            if self.buffer.is_starved and not self._is_postponed:
                self._memory.add_waiting(self)
        self.send()

    def resume_receiving(self) -> None:
        """Try again to let a starved buffer grow, and receive if it did."""
        if self._has_received:
            return  # the end of the turn compacts it
        self.buffer.compact()
        self._update_events()

    def send(self) -> None:
        """Send complete responses until the socket is full or the turn's share is used up."""
        if not self.is_open:
            return
        began_s = 0.0 if self.meters is None else time.monotonic()
        for parts in self.responses.pop_complete():
            sent = copy_small_spans(parts) if len(parts) > 1 else parts
            self._output.extend(sent)
            self._output_bytes += sum(len(part) for part in sent if isinstance(part, bytes))
        try:
            self._is_blocked = self._send_output()
        except OSError as error:
            self._fail_send(error)
            return
        if self.meters is not None:
            now_s = time.monotonic()
            self.meters.record_request(now_s - began_s, self._loop.now_s)
        self._update_events()

    def count_work(self, seconds: float) -> None:
        """Count the time of a request against the client's quota, if it has one."""
        if self.meters is not None:
            self.meters.record_request(seconds, self._loop.now_s)

    def _fail_send(self, error: OSError) -> None:
        span = self._output[0] if self._output else None
        if isinstance(span, FileSpan) and not isinstance(error, ConnectionError):
            # The disk may have failed, or the network: a second read shows which.
            self._read_pool.submit(partial(load_into_cache, span), partial(_record_failure, span))
        self.close(None if isinstance(error, ConnectionError) else f"send failed: {error}")

    def _handle_events(self, events: int) -> None:
        if events & READ:
            self._receive()
        if events & WRITE and self.is_open:
            self.send()

    def _receive(self) -> None:
        count = self._receive_into(self.buffer.free_space())
        if count:
            self.buffer.add_received(count)
            self._handle_frames()

    def _receive_into(self, space: memoryview) -> int:
        """Return the number of bytes received; 0 if there are none, or the connection ended."""
        try:
            count = self._sock.recv_into(space)
        except BlockingIOError:
            return 0
        except OSError:
            count = 0
        if count == 0:
            self.close()
        self.last_active_s = self._loop.now_s
        return count

    def _handle_postponed(self) -> None:
        self._is_resuming = False
        if self.is_open and self._unmute is None:
            self._is_postponed = False
            self._handle_frames()

    def _handle_frames(self) -> None:
        self._has_received = True
        try:
            frames = self.buffer.pop_frames()
            self._dispatcher.dispatch(self, frames)
        except Exception as error:
            self.fail_request(error)

    def _send_output(self) -> bool:
        """Send; returns whether the socket is full or the turn's share is used up."""
        share = SEND_BYTES_PER_TURN
        while self._output and not self._is_loading:
            if share <= 0:
                return True
            head = self._output[0]
            sent = self._send_span(head) if isinstance(head, FileSpan) else self._send_bytes()
            if sent < 0:
                return True
            share -= max(sent, SEND_BYTES_MIN)
            self.last_active_s = self._loop.now_s
        return False

    def _send_bytes(self) -> int:
        """Send the bytes at the head of the queue; returns -1 if the socket is full."""
        data = self._join_output()
        flags = socket.MSG_MORE if self._output and isinstance(self._output[0], FileSpan) else 0
        try:
            sent = self._sock.send(data, flags)
        except BlockingIOError:
            sent = 0
        self._output_bytes -= sent
        if sent < len(data):
            self._output.appendleft(memoryview(data)[sent:])
            return -1
        return sent

    def _join_output(self) -> bytes | memoryview:
        first = self._output.popleft()
        assert not isinstance(first, FileSpan)
        if not self._output or isinstance(self._output[0], FileSpan):
            return first
        pieces = [first]
        size = len(first)
        while self._output and size < GATHER_BYTES:
            piece = self._output[0]
            if isinstance(piece, FileSpan):
                break
            pieces.append(piece)
            size += len(piece)
            self._output.popleft()
        return b"".join(pieces)

    def _send_span(self, span: FileSpan) -> int:
        chunk = FileSpan(span.file, span.position, min(span.length, SPAN_CHUNK_BYTES))
        if not is_cached(chunk):
            self._load(chunk)
            return 0
        try:
            sent = os.sendfile(
                self._sock.fileno(), chunk.file.fileno(), chunk.position, chunk.length
            )
        except BlockingIOError:
            return -1
        self._advance_span(span, sent)
        return sent

    def _advance_span(self, span: FileSpan, sent: int) -> None:
        """Remove the sent bytes from the span at the head of the queue."""
        if sent == 0:
            raise OSError(f"segment ends before byte {span.position + span.length}")
        if sent == span.length:
            self._output.popleft()
        else:
            self._output[0] = FileSpan(span.file, span.position + sent, span.length - sent)

    def _load(self, chunk: FileSpan) -> None:
        self._is_loading = True
        self._read_pool.submit(partial(load_into_cache, chunk), partial(self._finish_load, chunk))

    def _finish_load(self, chunk: FileSpan, result: Exception | None) -> None:
        self._is_loading = False
        _record_failure(chunk, result)
        if not self.is_open:
            return
        if result is not None:
            self.close(f"read failed: {result}")
            return
        self.send()

    def _update_events(self) -> None:
        # Unsent parts count too: a span in the queue takes some memory.
        in_flight = len(self.responses) + len(self._output)
        is_full = in_flight >= self._in_flight_max or self._output_bytes > OUTPUT_BYTES_MAX
        is_muted = self._unmute is not None
        is_due = self._is_postponed and not self._is_held and not is_muted
        if is_due and not is_full and not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._handle_postponed)
        reads = not (is_full or is_muted or self._is_postponed or self.buffer.is_starved)
        self._watch((READ if reads else 0) | (WRITE if self._is_blocked else 0))

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.modify(self._sock, events, self._handle_events)


def _record_failure(span: FileSpan, result: Exception | None) -> None:
    if result is not None:
        span.file.record_failure()
