"""HTTP/1.1 for unauthenticated clients: limits of connections, and of a request's head."""

import asyncio
import math
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTIONS_MAX: Final = 1_000
"""Connections of a process, below the 1,024 files that many systems allow."""

CONNECTIONS_REJECTED_MAX: Final = 100
"""This many more get a 503. Further ones are aborted: without a free file descriptor, the process
cannot reach the database and the log."""

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request line and headers without an end; `HeadLimit` checks those with one."""

HEAD_S: Final = 20.0
"""How long a client may take to send a request's head, from its connection or first byte."""


class BoundedHttp(HttpToolsProtocol):
    """Uvicorn's protocol with limits of a head's size and time.

    Uvicorn waits for a head without a timeout, and buffers all of it. Bodies need no limit here:
    they are read after the request is admitted.
    """

    _head_bytes = 0
    _is_in_head = True
    _timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._start_timeout()
        if len(self.connections) > CONNECTIONS_MAX:
            self._evict_connection()

    @property
    def timeout_at_s(self) -> float:
        """When the timeout of the head ends, in time of the loop; infinity without one."""
        if self._timeout is None or self.transport.is_closing():
            return math.inf
        return self._timeout.when()

    def _evict_connection(self) -> None:
        """Abort the connection that has waited longest for a whole head, if there is one."""
        others = cast("set[BoundedHttp]", self.connections) - {self}
        slowest = min(others, key=lambda each: each.timeout_at_s)
        if slowest.timeout_at_s < math.inf:
            slowest.transport.abort()
        elif len(self.connections) > CONNECTIONS_MAX + CONNECTIONS_REJECTED_MAX:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._cancel_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; reject a head that is too large."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._cancel_timeout()
            self.send_400_response("The head of the request is too large.")
        elif self._timeout is None and (self.cycle is None or self.cycle.response_complete):
            # Empty lines, or a body after its response: neither may continue without a limit.
            self._start_timeout()

    def on_message_begin(self) -> None:
        """Count a new head from its first byte."""
        super().on_message_begin()
        # The end of the previous request may have arrived in the same data.
        self._head_bytes = 0
        self._is_in_head = True
        self._start_timeout()

    def on_headers_complete(self) -> None:
        """Cancel the timeout at the end of the head."""
        self._is_in_head = False
        self._cancel_timeout()
        super().on_headers_complete()

    def _start_timeout(self) -> None:
        self._cancel_timeout()
        self._timeout = self.loop.call_later(HEAD_S, self.transport.close)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
