"""HTTP/1.1 from strangers: heads of requests are bounded in size and time."""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTIONS_MAX: Final = 500
"""Of one process; one more is closed. Few programs ask, and each asks seldom."""

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request line and headers that do not end; of those that do, the service takes less."""

HEAD_S: Final = 20.0
"""How long a client may take to send the head of a request, and to take the answer before it."""


class BoundedHttp(HttpToolsProtocol):
    """Uvicorn's protocol, which by itself waits for a head for ever and keeps all that came."""

    _head_bytes = 0
    _is_in_head = True
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; refuse a head that has grown too large without an end."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._stop_waiting()
            self.send_400_response("The head of the request is too large.")
        elif self._patience is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        super().on_message_begin()
        self._head_bytes = 0
        self._is_in_head = True
        self._wait()

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        self._is_in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self._patience is None:
            self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        # Not closed: that would wait for a client that does not take its answer.
        self._patience = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
