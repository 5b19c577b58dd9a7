"""The connections to one origin: limited in number, and kept alive between requests."""

import asyncio
from collections.abc import Awaitable, Callable

from app.domain.delivery import NotSent
from app.webhooks.dialer import DialFailed
from app.webhooks.http_connection import HttpConnection, HttpResponse, NoResponse
from app.webhooks.limits import SenderLimits, timeout_reason
from app.webhooks.request_slots import RequestSlots

Dial = Callable[[], Awaitable[HttpConnection]]

MayStart = Callable[[], bool]
"""Called right before a request is sent; False withholds it."""

ExchangeResult = HttpResponse | NoResponse | NotSent


def always() -> bool:
    """Allow the request."""
    return True


class ConnectionPool:
    """Sends requests to one origin, each when it has a slot: see `request_slots`.

    A slow receiver uses up its own pool only, and a slow URL at most the shared slots of its pool.
    """

    def __init__(self, dial: Dial, limits: SenderLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._dial = dial
        self._limits = limits
        self._slots = RequestSlots(limits.connections_per_target - 1)
        self._users = 0
        self._idle: list[HttpConnection] = []
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def is_unused(self) -> bool:
        """Whether it has no requests and no idle connections."""
        return not self._users and not self._idle

    async def exchange(
        self,
        request: bytes,
        url: str,
        may_start: MayStart = always,
        body_bytes_kept: int = 0,
        timeout_s: float | None = None,
    ) -> ExchangeResult:
        """Send `request` to `url` and return the result, with a body of up to `body_bytes_kept`.

        `may_start` is called after the waits for a slot and a connection. `timeout_s` shortens the
        limit `total_s`.
        """
        total_s = self._limits.total_s
        if timeout_s is not None and timeout_s < total_s:
            total_s = timeout_s
        self._users += 1
        try:
            if not self._slots.try_acquire(url):
                await self._slots.acquire(url)
            is_answered = None
            try:
                result = await self._exchange(request, may_start, body_bytes_kept, total_s)
                if not isinstance(result, NotSent):
                    is_answered = isinstance(result, HttpResponse)
                return result
            finally:
                self._slots.release(url, is_answered)
        finally:
            self._users -= 1

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().abort()
        if self._sweep is not None:
            self._sweep.cancel()

    async def _exchange(
        self, request: bytes, may_start: MayStart, body_bytes_kept: int, total_s: float
    ) -> ExchangeResult:
        deadline = self._loop.time() + total_s
        limit = (deadline, total_s)
        kept = self._pop_idle()
        if kept is not None:
            result = await self._send(kept, request, limit, may_start, body_bytes_kept)
            # A server that closed an idle connection has usually not seen the request. If it has,
            # it gets the event twice with one webhook-id, as "at least once" allows.
            if not (isinstance(result, NoResponse) and result.was_stale):
                return result
        try:
            async with asyncio.timeout_at(deadline):
                fresh = await self._dial()
        except DialFailed as failure:
            return NoResponse(str(failure))
        except TimeoutError:
            return NoResponse(timeout_reason(total_s))
        return await self._send(fresh, request, limit, may_start, body_bytes_kept)

    async def _send(
        self,
        connection: HttpConnection,
        request: bytes,
        limit: tuple[float, float],
        may_start: MayStart,
        body_bytes_kept: int,
    ) -> ExchangeResult:
        try:
            if not may_start():
                return NotSent()
            return await connection.send_request(request, *limit, body_bytes_kept)
        finally:
            self._return(connection)

    def _pop_idle(self) -> HttpConnection | None:
        """The connection used last, which its server is least likely to have closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
        return None

    def _return(self, connection: HttpConnection) -> None:
        if not connection.is_reusable:
            # Also after a cancellation: a response that arrives later belongs to no request.
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.idle_s, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that were idle for too long, and schedule the next run if needed."""
        now = self._loop.time()
        self._sweep = None
        self._idle = [each for each in self._idle if self._is_fresh(each, now)]
        if self._idle:
            self._sweep = self._loop.call_later(self._limits.idle_s, self._close_idle)

    def _is_fresh(self, connection: HttpConnection, now: float) -> bool:
        if now - connection.idle_since >= self._limits.idle_s:
            connection.abort()
        return connection.is_reusable
