"""The route that streams a replay's progress, as Server-Sent Events.

Source: HTML Living Standard, section 9.2 "Server-sent events".
"""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.access import CallerDependency
from app.api.doors import DoorsDependency, now_ms
from app.api.models.replays import ReplayDocument
from app.api.openapi import refusals
from app.api.problems import BUSY, NOT_FOUND, TOO_MANY_STREAMS, UNAVAILABLE
from app.api.progress_watch import ProgressWatch, Watched
from app.domain.model import Replay
from app.domain.states import TERMINAL

HEARTBEAT_S: Final = 15.0
"""Proxies cut connections that are silent, often after a minute or less."""

STREAM_S_MAX: Final = 600.0
"""Then the client has to connect anew, and to show its key anew."""

MEDIA_TYPE: Final = "text/event-stream"

_RETRY: Final = "retry: 2000\n\n"
_HEARTBEAT: Final = ": still watching\n\n"

router = APIRouter(prefix="/replays", tags=["replays"])

_DESCRIPTION: Final = """\
Events: `progress` with the replay, first at once and then whenever it has changed, and `end` with
the replay once it is over. Lines that begin with a colon keep the connection alive.
"""


@router.get(
    "/{replay_id}/progress",
    operation_id="streamReplayProgress",
    response_class=Response,
    responses={
        200: {"description": _DESCRIPTION, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
        204: {"description": "The replay is over, and the client has seen how."},
        **refusals(NOT_FOUND, TOO_MANY_STREAMS, BUSY, UNAVAILABLE),
    },
)
async def stream_progress(
    replay_id: str,
    doors: DoorsDependency,
    caller: CallerDependency,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Follow a replay as it goes, in a stream of Server-Sent Events.

    The stream ends after `end`, after ten minutes, and when the server stops. Whoever connects
    anew with the `id` of the last event gets what is new since; 204 when nothing more can be.
    """
    replay = await run_in_threadpool(doors.store.replay, replay_id, of_account=caller.sees)
    if replay.state in TERMINAL and event_id(replay) == last_event_id:
        return Response(status_code=204)
    return ProgressStream(doors.watch, replay, caller.id, last_event_id)


class ProgressStream(StreamingResponse):
    """The answer: it has its replay watched from its first byte to its last."""

    def __init__(
        self,
        watch: ProgressWatch,
        replay: Replay,
        key_id: str,
        last_event_id: str | None,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        stream_s_max: float = STREAM_S_MAX,
    ) -> None:
        # Proxies such as nginx would gather the events before they pass them on.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(self._events(), headers=headers, media_type=MEDIA_TYPE)
        self._watch = watch
        self._replay = replay
        self._key_id = key_id
        self._seen_id = last_event_id
        self._heartbeat_s = heartbeat_s
        self._stream_s_max = stream_s_max
        self._watched = Watched(replay)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to one client until the end, or until it leaves."""
        with self._watch.seat(self._replay, self._key_id) as self._watched:
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[str]:
        watched = self._watched
        until_s = asyncio.get_running_loop().time() + self._stream_s_max
        yield _RETRY
        while True:
            # Taken before the look, so that no change slips through between the two.
            changed = watched.changed
            replay = watched.replay
            if event_id(replay) != self._seen_id:
                self._seen_id = event_id(replay)
                yield _event("progress", replay)
            if replay.state in TERMINAL:
                yield _event("end", replay)
                return
            remaining_s = until_s - asyncio.get_running_loop().time()
            if watched.is_given_up or remaining_s <= 0:
                return
            if not await _happens(changed, min(self._heartbeat_s, remaining_s)):
                yield _HEARTBEAT


def event_id(replay: Replay) -> str:
    """What stands for a replay as it was seen: equal at every server, until it changes."""
    return sha256(repr(replay).encode()).hexdigest()[:16]


def _event(name: str, replay: Replay) -> str:
    document = ReplayDocument.of(replay, now_ms()).model_dump_json(by_alias=True)
    return f"event: {name}\nid: {event_id(replay)}\ndata: {document}\n\n"


async def _happens(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
