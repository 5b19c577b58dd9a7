"""The event stream of an open page.

Source: HTML Living Standard, section 9.2 "Server-sent events".
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.console.live_broadcast import Broadcaster
from app.console.live_pages import OpenPage, parse_watch_list
from app.console.sessions import ViewerDependency
from app.console.urls import PREFIX, parse_filter
from app.http.event_stream import HEADERS, HEARTBEAT_S, MEDIA_TYPE, RETRY, STREAM_S_MAX
from app.services.services import now_ms

router = APIRouter(prefix=PREFIX)

Text = Annotated[str, Query(max_length=8_192)]


@router.get("/live")
async def live(
    request: Request, viewer: ViewerDependency, watch: Text = "", page: Text = ""
) -> Response:
    """Stream changes of the items in `watch`: `ID:VERSION,...`.

    Events: `clock` with the server's time in milliseconds, first and as a heartbeat; `change` with
    new markup of the parts of an item.
    """
    open_page = OpenPage(viewer.key.account_filter, parse_filter(page), parse_watch_list(watch))
    broadcaster = cast("Broadcaster", request.app.state.broadcaster)
    is_signed_in = partial(request.app.state.sessions.is_signed_in, request)
    return LiveStream(broadcaster, open_page, viewer.key.id, is_signed_in)


class LiveStream(StreamingResponse):
    """The response, which registers its page for as long as it streams.

    Every heartbeat checks that the session is still valid.
    """

    def __init__(
        self,
        broadcaster: Broadcaster,
        page: OpenPage,
        key_id: str,
        is_signed_in: Callable[[], Awaitable[bool]],
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(self._stream_events(), headers=HEADERS, media_type=MEDIA_TYPE)
        self._broadcaster = broadcaster
        self._page = page
        self._key_id = key_id
        self._is_signed_in = is_signed_in
        self._heartbeat_s = heartbeat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the page closes, its viewer signs out, or ten minutes have passed."""
        with self._broadcaster.register(self._page, self._key_id):
            await super().__call__(scope, receive, send)

    async def _stream_events(self) -> AsyncIterator[str]:
        clock = asyncio.get_running_loop().time
        until_s, checked_s = clock() + STREAM_S_MAX, clock()
        yield RETRY + _clock_event()
        while not self._broadcaster.is_closed and clock() < until_s:
            due_s = min(checked_s + self._heartbeat_s, until_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._page.has_updates.wait(), due_s - clock())
            if clock() >= due_s:
                if not await self._is_signed_in():
                    return
                checked_s = clock()
                yield _clock_event()
            if events := self._page.drain_updates():
                yield events


def _clock_event() -> str:
    return f"event: clock\ndata: {now_ms()}\n\n"
