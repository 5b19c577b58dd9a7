"""The one stream of an open page, as Server-Sent Events.

Source: HTML Living Standard, section 9.2 "Server-sent events".
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Final, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.doors import now_ms
from app.api.replay_progress import HEARTBEAT_S, MEDIA_TYPE, STREAM_S_MAX
from app.console.gate import ViewerDependency
from app.console.job_filters import filter_of
from app.console.live.broadcast import Broadcaster
from app.console.live.seats import Seat, parse_watch

_RETRY: Final = "retry: 2000\n\n"

router = APIRouter()

Text = Annotated[str, Query(max_length=8_192)]


@router.get("/live")
async def live(
    request: Request, viewer: ViewerDependency, watch: Text = "", page: Text = ""
) -> Response:
    """Stream what changes of the things that a page shows, `watch`: `ID:VERSION,...`.

    Events: `clock` with the server's time in milliseconds, first and with every heartbeat, and
    `change` with the new markup of something's parts.
    """
    seat = Seat(viewer.key.sees, filter_of(page), parse_watch(watch))
    broadcaster = cast("Broadcaster", request.app.state.broadcaster)
    is_signed_in = partial(request.app.state.gate.is_signed_in, request)
    return LiveStream(broadcaster, seat, viewer.key.id, is_signed_in)


class LiveStream(StreamingResponse):
    """The answer: its page has a seat from its first byte to its last.

    Whether its reader is signed in still is asked for as often as the time is told.
    """

    def __init__(
        self,
        broadcaster: Broadcaster,
        seat: Seat,
        key_id: str,
        is_signed_in: Callable[[], Awaitable[bool]],
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        # Proxies such as nginx would gather the events before they pass them on.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(self._events(), headers=headers, media_type=MEDIA_TYPE)
        self._broadcaster = broadcaster
        self._seat = seat
        self._key_id = key_id
        self._is_signed_in = is_signed_in
        self._heartbeat_s = heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to one page until it is closed, its reader signs out, or for ten minutes."""
        with self._broadcaster.seat(self._seat, self._key_id):
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[str]:
        clock = asyncio.get_running_loop().time
        until_s, asked_s = clock() + STREAM_S_MAX, clock()
        yield _RETRY + _clock()
        while not self._broadcaster.is_closed and clock() < until_s:
            due_s = min(asked_s + self._heartbeat_s, until_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._seat.woken.wait(), due_s - clock())
            if clock() >= due_s:
                if not await self._is_signed_in():
                    return
                asked_s = clock()
                yield _clock()
            if events := self._seat.take():
                yield events


def _clock() -> str:
    return f"event: clock\ndata: {now_ms()}\n\n"
