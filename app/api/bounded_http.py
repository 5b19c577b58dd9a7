"""HTTP/1.1 from strangers: what a request may cost before anybody knows whose it is."""

import asyncio
import math
from typing import Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTIONS_MAX: Final = 1_000
"""Connections of one process, below the 1,024 files that many systems let it open."""

CONNECTIONS_TOLD: Final = 100
"""Above so many more, nobody is told any more that there are too many: without a free file, the
database and the log are out of reach."""

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request line and headers that do not end; those that do are judged by `HeadLimit`."""

HEAD_S: Final = 20.0
"""How long a client may take to send the head of a request, from its connecting or first byte."""


class BoundedHttp(HttpToolsProtocol):
    """Uvicorn's protocol with heads that are bounded in size and time.

    By itself it waits forever for a head, and keeps all that came of it. A body needs no such
    care: none is read before the gate has let its request in.
    """

    _head_bytes = 0
    _is_in_head = True
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    @property
    def waits_until_s(self) -> float:
        """Until when, in time of the loop, a head is waited for; infinity while none is."""
        if self._patience is None or self.transport.is_closing():
            return math.inf
        return self._patience.when()

    def _make_room(self) -> None:
        """Close who has sent no whole head for longest: those with something to ask come first."""
        others = cast("set[BoundedHttp]", self.connections) - {self}
        slowest = min(others, key=lambda each: each.waits_until_s)
        if slowest.waits_until_s < math.inf:
            slowest.transport.abort()
        elif len(self.connections) > CONNECTIONS_MAX + CONNECTIONS_TOLD:
            self.transport.abort()

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
            # Empty lines, or a body that was answered without being read: neither may go on.
            self._wait()

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        super().on_message_begin()
        # What came along with the end of the request before was counted in vain.
        self._head_bytes = 0
        self._is_in_head = True
        self._wait()

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        self._is_in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self.transport.close()
