"""HTTP/1.1 for unauthenticated clients: limits of connections, request heads, unread responses."""

import asyncio
import math
import socket
from typing import ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request line and headers without an end; servers have a lower limit for those with one."""

HEAD_S: Final = 20.0
"""How long a client may take to send a request's head, from its connection or first byte."""

UNREAD_S: Final = 20.0
"""How long a client may read nothing of a response that waits for it."""

_UNSENT_BYTES_MAX: Final = 64 * 1024
"""Unsent bytes of a connection in the kernel, which otherwise holds megabytes: a client that reads
slowly would seem to read nothing for minutes."""


class BoundedHttp(HttpToolsProtocol):
    """Uvicorn's protocol with limits of a process's connections, and of what each may wait for.

    Uvicorn waits for a head and for the reader of a response without a timeout, and buffers all of
    a head. Bodies need no limit here: they are read after the request is admitted.
    """

    connections_max: ClassVar[int] = 1_000
    """Connections of a process, below the 1,024 files that many systems allow. A new one above this
    number replaces the one that has waited longest for its client."""

    connections_rejected_max: ClassVar[int] = 100
    """This many more get a 503 if none can be replaced. Further ones are aborted: without a free
    file descriptor, the process cannot reach the database and the log."""

    _head_bytes = 0
    _is_in_head = True
    _head_timeout: asyncio.TimerHandle | None = None
    _read_timeout: asyncio.TimerHandle | None = None
    _unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        # Every wait for a reader calls `pause_writing`, not only that of a full buffer. With 0,
        # transports with TLS would wait for ever.
        transport.set_write_buffer_limits(high=1)
        _limit_unsent_bytes(transport)
        self._start_head_timeout()
        if len(self.connections) > self.connections_max:
            self._evict_connection()

    @property
    def timeout_at_s(self) -> float:
        """When the client's time ends, in time of the loop; infinity if it owes nothing."""
        head_end_s = math.inf
        if self._head_timeout is not None and not self.transport.is_closing():
            head_end_s = self._head_timeout.when()
        read_end_s = math.inf if self._read_timeout is None else self._read_timeout.when()
        return min(head_end_s, read_end_s)

    def _evict_connection(self) -> None:
        """Abort the connection that has waited longest for its client, if there is one."""
        others = cast("set[BoundedHttp]", self.connections) - {self}
        slowest = min(others, key=lambda each: each.timeout_at_s)
        if slowest.timeout_at_s < math.inf:
            slowest.transport.abort()
        elif len(self.connections) > self.connections_max + self.connections_rejected_max:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts."""
        self._cancel_head_timeout()
        self._cancel_read_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; reject a head that is too large."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._cancel_head_timeout()
            self.send_400_response("The head of the request is too large.")
        elif self._head_timeout is None and (self.cycle is None or self.cycle.response_complete):
            # Empty lines, or a body after its response: neither may continue without a limit.
            self._start_head_timeout()

    def on_message_begin(self) -> None:
        """Count a new head from its first byte."""
        super().on_message_begin()
        # The end of the previous request may have arrived in the same data.
        self._head_bytes = 0
        self._is_in_head = True
        self._start_head_timeout()

    def on_headers_complete(self) -> None:
        """Cancel the timeout at the end of the head."""
        self._is_in_head = False
        self._cancel_head_timeout()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Start the timeout of the next request, if none has arrived."""
        super().on_response_complete()
        if self._head_timeout is None and self.cycle.response_complete:
            self._start_head_timeout()

    def pause_writing(self) -> None:
        """Start the timeout of the reader: a part of the response waits for it."""
        super().pause_writing()
        self._start_read_timeout()

    def resume_writing(self) -> None:
        """Cancel the timeout of the reader: nothing waits for it."""
        self._cancel_read_timeout()
        super().resume_writing()

    def abort_without_reader(self) -> None:
        """Abort the connection if the client has read nothing since the timeout started."""
        if self.transport.get_write_buffer_size() < self._unread_bytes:
            self._start_read_timeout()
        else:
            # Closing would wait for the reader.
            self.transport.abort()

    def _start_head_timeout(self) -> None:
        self._cancel_head_timeout()
        self._head_timeout = self.loop.call_later(HEAD_S, self.transport.close)

    def _cancel_head_timeout(self) -> None:
        if self._head_timeout is not None:
            self._head_timeout.cancel()
            self._head_timeout = None

    def _start_read_timeout(self) -> None:
        # Nothing more is written before it is read, so fewer bytes mean that some were.
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_timeout = self.loop.call_later(UNREAD_S, self.abort_without_reader)

    def _cancel_read_timeout(self) -> None:
        if self._read_timeout is not None:
            self._read_timeout.cancel()
            self._read_timeout = None


def _limit_unsent_bytes(transport: asyncio.Transport) -> None:
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    connection = transport.get_extra_info("socket")
    if option is not None and connection is not None and connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_BYTES_MAX)
