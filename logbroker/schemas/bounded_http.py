"""HTTP/1.1 for unauthenticated clients: size and time of request heads are limited."""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTIONS_MAX: Final = 500
"""Connections of one process; further ones are closed. Few clients connect, and each sends few
requests.
"""

HEAD_BYTES_MAX: Final = 64 * 1024
"""Size of a request line and headers that have not ended; the service has a lower limit for
complete ones.
"""

HEAD_S: Final = 20.0
"""Time a client may take to send a request head, and to read the response before it."""


class BoundedHttp(HttpToolsProtocol):
    """Uvicorn's protocol with limits; by itself it buffers a request head without limit."""

    _head_bytes = 0
    _is_in_head = True
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; reject an unfinished head above the size limit."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._stop_waiting()
            self.send_400_response("The head of the request is too large.")
        elif self._patience is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()

    def on_message_begin(self) -> None:
        """Record the first byte of a request."""
        super().on_message_begin()
        self._head_bytes = 0
        self._is_in_head = True
        self._wait()

    def on_headers_complete(self) -> None:
        """Record the end of the head."""
        self._is_in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Start the time limit of the next request."""
        super().on_response_complete()
        if self._patience is None:
            self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        # Aborted rather than closed: closing waits for a client that does not read its response.
        self._patience = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
