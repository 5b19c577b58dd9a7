"""One client's connection: bytes in, answers out in order, and the limits that hold it."""

import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from logbroker.errors import ProtocolViolation
from logbroker.server.loop import READ, WRITE, SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.page_cache import is_warm, warm
from logbroker.server.workers import Workers
from logbroker.storage.span import FileSpan
from logbroker.wire.answers import AnswerQueue, Slot
from logbroker.wire.produce import ProduceDecoder
from logbroker.wire.receive_buffer import ReceiveBuffer

log = logging.getLogger("logbroker.connection")

SEND_BYTES_PER_TURN: Final = 4 * 2**20
"""A fast reader of old data gives way to others after this much."""

SPAN_CHUNK_BYTES: Final = 1024 * 1024
"""How much one `sendfile` sends, and so how much is read ahead where it is cold."""

GATHER_BYTES: Final = 256 * 1024
"""Small answers are joined into one send up to about this size."""

OUTPUT_BYTES_MAX: Final = 8 * 2**20
"""Answers in memory that a client has not read; above it the connection is not read either."""

Part = bytes | FileSpan


class Waiting(Protocol):
    """What waits for something to answer a connection with."""

    def leave(self) -> None:
        """Wait no more."""


class Dispatcher(Protocol):
    """What a connection does with the frames it has received."""

    def dispatch(self, connection: "Connection", frames: list[tuple[int, int]]) -> None:
        """Handle whole frames, given as ranges of `connection.buffer.view()`."""


class Connection:
    """A socket, what it has sent us, and what we owe it.

    The dispatcher opens a slot for each answer and fills it at once or later; slots leave in
    the order in which they were opened. Reading pauses while too much is unanswered or unread.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: SocketLoop,
        reads: Workers,
        dispatcher: Dispatcher,
        counters: Counters,
        *,
        request_bytes_max: int,
        requests_in_flight_max: int,
        on_close: Callable[["Connection"], None],
    ) -> None:
        self.peer = peer
        self.buffer = ReceiveBuffer(frame_bytes_max=request_bytes_max)
        self.answers = AnswerQueue()
        self.produce_decoder = ProduceDecoder()
        self.waiting: set[Waiting] = set()
        """Told to leave when the connection closes, or it would be kept until their time is up."""
        self.client_id: str | None = None
        self.is_open = True
        self.last_active_s = loop.now_s
        self._sock = sock
        self._loop = loop
        self._reads = reads
        self._dispatcher = dispatcher
        self._counters = counters
        self._in_flight_max = requests_in_flight_max
        self._on_close = on_close
        self._output: deque[Part | memoryview] = deque()
        self._output_bytes = 0
        self._has_received = False
        self._is_warming = False
        self._is_blocked = False
        self._is_postponed = False
        self._is_resuming = False
        self._events = READ
        loop.register(sock, READ, self._ready)

    def open_slot(self) -> Slot:
        """A place in the order of answers."""
        return self.answers.open()

    def postpone(self, start: int) -> None:
        """Handle the frames from `start` on in a later turn, before anything more is read."""
        self.buffer.give_back(start)
        self._is_postponed = True

    def close(self, reason: str | None = None) -> None:
        """Close now; `reason` is for the log, none for an ordinary end."""
        if not self.is_open:
            return
        self.is_open = False
        if reason is not None:
            log.warning("closed peer=%s client=%r reason=%s", self.peer, self.client_id, reason)
        self._loop.unregister(self._sock)
        with contextlib.suppress(OSError):
            self._sock.close()
        self._output.clear()
        # Its templates know partitions, and would keep the files of a deleted topic open.
        self.produce_decoder = ProduceDecoder()
        for waiting in list(self.waiting):
            waiting.leave()
        self._on_close(self)

    def finish_turn(self) -> None:
        """Make room for the next read and send what is ready; the turn's end calls it."""
        if not self.is_open:
            return
        if self._has_received:
            self._has_received = False
            self.buffer.compact()
        self.send()

    def send(self) -> None:
        """Send ready answers until the socket or this turn's share is full."""
        if not self.is_open:
            return
        for parts in self.answers.take_ready():
            self._output.extend(parts)
            self._output_bytes += sum(len(part) for part in parts if isinstance(part, bytes))
        try:
            self._is_blocked = bool(self._output) and self._send_output()
        except OSError as error:
            self.close(None if isinstance(error, ConnectionError) else f"send failed: {error}")
            return
        self._choose_events()

    def _ready(self, events: int) -> None:
        if events & READ:
            self._receive()
        if events & WRITE and self.is_open:
            self.send()

    def _receive(self) -> None:
        try:
            count = self._sock.recv_into(self.buffer.space())
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self.last_active_s = self._loop.now_s
        self.buffer.received(count)
        self._handle_frames()

    def _resume(self) -> None:
        self._is_resuming = False
        if self.is_open:
            self._is_postponed = False
            self._handle_frames()

    def _handle_frames(self) -> None:
        self._has_received = True
        try:
            frames = self.buffer.take_frames()
            self._dispatcher.dispatch(self, frames)
        except ProtocolViolation as violation:
            self._counters.connections_broken += 1
            self.close(str(violation))
        except Exception:
            # A defect of ours costs the client that met it its connection, and nobody else's.
            log.exception("request failed peer=%s client=%r", self.peer, self.client_id)
            self.close("internal error")

    def _send_output(self) -> bool:
        """Send; true when the socket is full or this turn's share is used up."""
        share = SEND_BYTES_PER_TURN
        while self._output and not self._is_warming:
            if share <= 0:
                return True
            head = self._output[0]
            sent = self._send_span(head) if isinstance(head, FileSpan) else self._send_bytes()
            if sent < 0:
                return True
            share -= sent
            self.last_active_s = self._loop.now_s
        return False

    def _send_bytes(self) -> int:
        """Send the memory at the head of the queue in one piece; -1 when the socket is full."""
        data = self._gather()
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

    def _gather(self) -> bytes | memoryview:
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
        if not is_warm(chunk):
            self._warm(chunk)
            return 0
        try:
            sent = os.sendfile(
                self._sock.fileno(), chunk.file.fileno(), chunk.position, chunk.length
            )
        except BlockingIOError:
            return -1
        if sent == 0:
            raise OSError(f"segment ends before byte {span.position + span.length}")
        if sent == span.length:
            self._output.popleft()
        else:
            self._output[0] = FileSpan(span.file, span.position + sent, span.length - sent)
        return sent

    def _warm(self, chunk: FileSpan) -> None:
        self._is_warming = True
        self._reads.run(lambda: warm(chunk), self._warmed)

    def _warmed(self, result: Exception | None) -> None:
        self._is_warming = False
        if not self.is_open:
            return
        if result is not None:
            self.close(f"read failed: {result}")
            return
        self.send()

    def _choose_events(self) -> None:
        # What the client has not read counts, too: spans take little memory each, but some.
        in_flight = len(self.answers) + len(self._output)
        is_full = in_flight >= self._in_flight_max or self._output_bytes > OUTPUT_BYTES_MAX
        if self._is_postponed and not is_full and not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._resume)
        reads = not is_full and not self._is_postponed
        events = (READ if reads else 0) | (WRITE if self._is_blocked else 0)
        if events != self._events:
            self._events = events
            self._loop.modify(self._sock, events, self._ready)
