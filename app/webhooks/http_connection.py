"""One connection to a receiver: a request goes out, the status of its answer comes back.

The status is the receiver's verdict. The answer's body is read only so that the connection can
serve again, so an answer whose head is complete counts, whatever becomes of its body. Where the
body is asked for as well, it is kept as it came: nothing is ever unpacked. Of a refusal's body, the
beginning is kept, which may say why; so it is of any body that was asked for.
"""

import asyncio
import os
from dataclasses import dataclass
from typing import Final

import httptools

from app.webhooks.limits import SenderLimits

EXCERPT_BYTES: Final = 1_024
"""Of a refusal's body. Thousands may be kept at a time, so it is no more than a message."""

_INFORMATIONAL: Final = range(100, 200)
_SUCCESSFUL: Final = range(200, 300)

_BODY_LENGTH_HEADERS: Final = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of a receiver's final answer.

    `body` is None unless it was asked for and came to its end within its bounds. `excerpt` is how
    the body of a refusal begins, or of any answer whose body was asked for, as far as it came.
    """

    status: int
    retry_after: str | None
    body: bytes | None = None
    excerpt: bytes = b""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The exchange ended before the head of an answer was complete.

    `was_stale`: the connection had served before and was closed before one byte came back,
    as it happens when a server closes an idle connection just when we begin to use it.
    """

    reason: str
    was_stale: bool = False


class HttpConnection(asyncio.Protocol):
    """Carries one request at a time; afterwards `is_reusable` says whether it can carry more."""

    def __init__(self, limits: SenderLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._result: asyncio.Future[Answer | NoAnswer] | None = None
        self._has_served = False
        self.is_reusable = False
        self.idle_since = 0.0
        """Loop time at which the pool got it back."""

    def ask(
        self, request: bytes, deadline: float, body_bytes_kept: int = 0
    ) -> "asyncio.Future[Answer | NoAnswer]":
        """Send `request`; what comes back until `deadline` (loop time) is the future's result.

        The answer's body is kept when it is asked for by its greatest length.
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
        self._timer = self._loop.call_at(deadline, self._end, self._limits.timeout_reason)
        self._result = self._loop.create_future()
        assert self._transport is not None
        self._transport.write(request)
        return self._result

    def abort(self) -> None:
        """Close at once; an exchange under way ends without an answer."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read on in the answer, within its bounds."""
        if self._result is None:
            # Nobody asked, so this is no answer to whatever is asked next.
            self.abort()
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_reusable = False
            self._end(f"malformed answer: {error}")
            return
        if self._is_complete or self._received_bytes > self._bytes_max:
            self._end(f"malformed answer: its head is above {self._bytes_max} bytes")

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange under way, if there is one."""
        self.is_reusable = False
        if self._result is not None:
            if error is None and self._status is not None and self._ends_with_connection:
                self._is_complete = True
            is_silent = self._received_bytes == 0
            self._end(_reason(error), was_stale=self._has_served and is_silent)

    def on_message_begin(self) -> None:
        """Trust no connection that gives two answers to one question."""
        if self._is_complete:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the one header that matters; a trailer comes too late to matter."""
        if self._status is not None:
            return
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name in _BODY_LENGTH_HEADERS:
            self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        """Take the status, unless it is an interim one."""
        status = self._parser.get_status_code()
        if status in _INFORMATIONAL:
            self._retry_after = None
            self._ends_with_connection = True
        else:
            self._status = status
            if status not in _SUCCESSFUL or self._body is not None:
                self._excerpt = bytearray()

    def on_body(self, data: bytes) -> None:
        """Keep what was asked for; the bound on what is read bounds it too."""
        if self._body is not None and not self._is_complete:
            self._body += data
        if self._excerpt is not None and not self._is_complete:
            self._excerpt += data[: EXCERPT_BYTES - len(self._excerpt)]

    def on_message_complete(self) -> None:
        """Say that all is read, unless this was an interim answer."""
        if self._status is None or self._is_complete:
            return
        assert self._transport is not None
        # A receiver may answer before it has read all; the rest must not lead the next request.
        is_sent = self._transport.get_write_buffer_size() == 0
        self._is_complete = True
        self.is_reusable = is_sent and self._parser.should_keep_alive()

    @property
    def _bytes_max(self) -> int:
        limits = self._limits
        if self._status is None:
            return limits.response_head_bytes
        return limits.response_head_bytes + limits.response_body_bytes

    def _end(self, reason: str, was_stale: bool = False) -> None:
        result, self._result = self._result, None
        self._timer.cancel()
        self._has_served = True
        if not self.is_reusable:
            self.abort()
        if result is None or result.cancelled():
            return
        if self._status is None:
            result.set_result(NoAnswer(reason, was_stale))
        else:
            body = None if self._body is None else self._whole_body(self._body)
            excerpt = b"" if self._excerpt is None else bytes(self._excerpt)
            result.set_result(Answer(self._status, self._retry_after, body, excerpt))

    def _whole_body(self, body: bytearray) -> bytes | None:
        is_whole = self._is_complete and len(body) <= self._body_bytes_kept
        return bytes(body) if is_whole else None


def _reason(error: Exception | None) -> str:
    if error is None:
        return "reset: the connection was closed without an answer"
    if isinstance(error, OSError) and error.errno is not None:
        return f"reset: {os.strerror(error.errno)}"
    return f"reset: {error}"
