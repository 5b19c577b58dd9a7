"""One HTTP connection to a receiver.

The status decides the outcome of an attempt. The body is read so that the connection can be
reused: a response with a complete head counts, whatever happens to its body. The sender keeps the
beginning of a non-2xx body, and a body that the caller asked for. Nothing is decompressed.
"""

import asyncio
import os
from dataclasses import dataclass
from typing import Final, cast

import httptools

from app.webhooks.limits import SenderLimits, timeout_reason

EXCERPT_BYTES: Final = 1_024
"""The kept beginning of a body. Thousands may be in memory, so it is the size of a message."""

_INFORMATIONAL: Final = range(100, 200)
_SUCCESSFUL: Final = range(200, 300)

_BODY_LENGTH_HEADERS: Final = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The final response of a receiver.

    `body` is None unless it was asked for and arrived completely within its limit. `excerpt` is
    the beginning of a non-2xx body or of a body that was asked for, as far as it arrived.
    """

    status: int
    retry_after: str | None
    body: bytes | None = None
    excerpt: bytes = b""


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The exchange ended before the head of a response was complete.

    `was_stale`: the connection was reused, and closed before one byte arrived. This happens if a
    server closes an idle connection while a request is sent.
    """

    reason: str
    was_stale: bool = False


class HttpConnection(asyncio.Protocol):
    """Sends one request at a time; afterwards `is_reusable` says whether it can send more."""

    def __init__(self, limits: SenderLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._result: asyncio.Future[HttpResponse | NoResponse] | None = None
        self._has_served = False
        self.is_reusable = False
        self.idle_since = 0.0
        """Loop time at which it was returned to the pool."""

    def send_request(
        self, request: bytes, deadline: float, total_s: float, body_bytes_kept: int = 0
    ) -> "asyncio.Future[HttpResponse | NoResponse]":
        """Send `request`; the future has the result at `deadline` (loop time) at the latest.

        `total_s` is the time of the whole attempt, for the reason of a timeout. Keeps a body of up
        to `body_bytes_kept`.
        """
        self.is_reusable = False
        self._body_bytes_kept = body_bytes_kept
        self._body: bytearray | None = bytearray() if body_bytes_kept else None
        self._excerpt: bytearray | None = None
        self._ends_with_connection = True
        self._received_bytes = 0
        self._status: int | None = None
        self._retry_after: str | None = None
        self._is_complete = False
        self._timer = self._loop.call_at(deadline, self._time_out, total_s)
        self._result = self._loop.create_future()
        assert self._transport is not None
        self._transport.write(request)
        return self._result

    def abort(self) -> None:
        """Close at once; a running exchange ends without a response."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # Transports of uvloop are no subclass.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse more of the response, within the limits."""
        if self._result is None:
            # Without a request it must not become the response to the next one.
            self.abort()
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_reusable = False
            self._finish(f"malformed response: {error}")
            return
        if self._is_complete or self._received_bytes > self._bytes_max:
            self._finish(f"malformed response: head exceeds {self._bytes_max} bytes")

    def connection_lost(self, error: Exception | None) -> None:
        """End the running exchange, if any."""
        self.is_reusable = False
        if self._result is not None:
            if error is None and self._status is not None and self._ends_with_connection:
                self._is_complete = True
            is_silent = self._received_bytes == 0
            self._finish(_reason(error), was_stale=self._has_served and is_silent)
        # It refers to this object: without the cycle, both are freed at once.
        del self._parser

    def on_message_begin(self) -> None:
        """Do not reuse a connection with two responses to one request."""
        if self._is_complete:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store Retry-After, and whether the body has a length; ignores trailers."""
        if self._status is not None:
            return
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name in _BODY_LENGTH_HEADERS:
            self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        """Store the status, unless the response is informational (1xx)."""
        status = self._parser.get_status_code()
        if status in _INFORMATIONAL:
            self._retry_after = None
            self._ends_with_connection = True
        else:
            self._status = status
            if status not in _SUCCESSFUL or self._body is not None:
                self._excerpt = bytearray()

    def on_body(self, data: bytes) -> None:
        """Store the body and the excerpt if wanted; the limit on received bytes applies."""
        if self._body is not None and not self._is_complete:
            self._body += data
        if self._excerpt is not None and not self._is_complete:
            self._excerpt += data[: EXCERPT_BYTES - len(self._excerpt)]

    def on_message_complete(self) -> None:
        """Mark the response as complete, unless it is informational (1xx)."""
        if self._status is None or self._is_complete:
            return
        assert self._transport is not None
        # A receiver may respond before it has read the request: the rest must not precede another.
        is_sent = self._transport.get_write_buffer_size() == 0
        self._is_complete = True
        self.is_reusable = is_sent and self._parser.should_keep_alive()

    @property
    def _bytes_max(self) -> int:
        limits = self._limits
        if self._status is None:
            return limits.response_head_bytes
        return limits.response_head_bytes + limits.response_body_bytes

    def _time_out(self, total_s: float) -> None:
        self._finish(timeout_reason(total_s))

    def _finish(self, reason: str, was_stale: bool = False) -> None:
        """End the exchange; `reason` is used only if no status has arrived."""
        result, self._result = self._result, None
        self._timer.cancel()
        self._has_served = True
        if not self.is_reusable:
            self.abort()
        if result is None or result.cancelled():
            return
        if self._status is None:
            result.set_result(NoResponse(reason, was_stale))
        else:
            body = None if self._body is None else self._complete_body(self._body)
            excerpt = b"" if self._excerpt is None else bytes(self._excerpt)
            result.set_result(HttpResponse(self._status, self._retry_after, body, excerpt))

    def _complete_body(self, body: bytearray) -> bytes | None:
        is_whole = self._is_complete and len(body) <= self._body_bytes_kept
        return bytes(body) if is_whole else None


def _reason(error: Exception | None) -> str:
    if error is None:
        return "reset: connection closed without a response"
    if isinstance(error, OSError) and error.errno is not None:
        return f"reset: {os.strerror(error.errno)}"
    return f"reset: {error}"
