"""The connections to one origin: at most so many, kept alive between requests."""

import asyncio
from collections.abc import Awaitable, Callable

from app.domain.delivery import NotSent
from app.webhooks.dialer import DialFailed
from app.webhooks.http_connection import Answer, HttpConnection, NoAnswer
from app.webhooks.limits import SenderLimits

Dial = Callable[[], Awaitable[HttpConnection]]

MayStart = Callable[[], bool]
"""Asked when a request is about to leave: whether it still may."""

Exchanged = Answer | NoAnswer | NotSent


def always() -> bool:
    """What a request that nothing can hold back is allowed."""
    return True


class ConnectionPool:
    """Carries requests to one origin; those above `connections_per_target` wait their turn.

    A slow receiver fills its own pool and nobody else's.
    """

    def __init__(self, dial: Dial, limits: SenderLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._dial = dial
        self._limits = limits
        self._places = asyncio.Semaphore(limits.connections_per_target)
        self._users = 0
        self._idle: list[HttpConnection] = []
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def is_unused(self) -> bool:
        """Whether it could be forgotten: no request, and no connection kept."""
        return not self._users and not self._idle

    async def exchange(
        self, request: bytes, may_start: MayStart = always, body_bytes_kept: int = 0
    ) -> Exchanged:
        """Send `request` and give what came back, with a body of up to `body_bytes_kept`.

        It may have waited long for its turn and for a connection: `may_start` has the last word.
        """
        self._users += 1
        try:
            async with self._places:
                return await self._exchange(request, may_start, body_bytes_kept)
        finally:
            self._users -= 1

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().abort()
        if self._sweep is not None:
            self._sweep.cancel()

    async def _exchange(
        self, request: bytes, may_start: MayStart, body_bytes_kept: int
    ) -> Exchanged:
        deadline = self._loop.time() + self._limits.total_s
        kept = self._take_idle()
        if kept is not None:
            answer = await self._ask(kept, request, deadline, may_start, body_bytes_kept)
            # A server that closed an idle connection has, as a rule, not seen the request. Where
            # it has, it gets the event twice with one webhook-id: what "at least once" allows.
            if not (isinstance(answer, NoAnswer) and answer.was_stale):
                return answer
        try:
            async with asyncio.timeout_at(deadline):
                fresh = await self._dial()
        except DialFailed as failure:
            return NoAnswer(str(failure))
        except TimeoutError:
            return NoAnswer(self._limits.timeout_reason)
        return await self._ask(fresh, request, deadline, may_start, body_bytes_kept)

    async def _ask(
        self,
        connection: HttpConnection,
        request: bytes,
        deadline: float,
        may_start: MayStart,
        body_bytes_kept: int,
    ) -> Exchanged:
        try:
            if not may_start():
                return NotSent()
            return await connection.ask(request, deadline, body_bytes_kept)
        finally:
            self._take_back(connection)

    def _take_idle(self) -> HttpConnection | None:
        """The connection used last, which its server is least likely to have closed."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
        return None

    def _take_back(self, connection: HttpConnection) -> None:
        if not connection.is_reusable:
            # Also where our caller gave up: the answer that may still come belongs to nobody.
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.idle_s, self._close_idle)

    def _close_idle(self) -> None:
        """Close what was idle for too long, and come back while something is left."""
        now = self._loop.time()
        self._sweep = None
        self._idle = [each for each in self._idle if self._is_fresh(each, now)]
        if self._idle:
            self._sweep = self._loop.call_later(self._limits.idle_s, self._close_idle)

    def _is_fresh(self, connection: HttpConnection, now: float) -> bool:
        if now - connection.idle_since >= self._limits.idle_s:
            connection.abort()
        return connection.is_reusable
