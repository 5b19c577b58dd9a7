"""The route that streams a replay's progress, as Server-Sent Events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.admission import CallerDependency
from app.api.models.replays import ReplayDocument
from app.api.openapi import ANY_ERROR, errors
from app.domain.model import Replay
from app.domain.states import TERMINAL
from app.http.dependencies import ServicesDependency
from app.http.event_stream import HEADERS, HEARTBEAT_S, MEDIA_TYPE, RETRY, STREAM_S_MAX
from app.http.problems import BUSY, NOT_FOUND, TOO_MANY_STREAMS, UNAVAILABLE
from app.services.progress_watch import PolledReplay, ProgressWatch, version_of
from app.services.services import now_ms

_HEARTBEAT: Final = ": heartbeat\n\n"

router = APIRouter(prefix="/replays", tags=["replays"], responses=ANY_ERROR)

_DESCRIPTION: Final = """\
Events: `progress` with the replay, at the start and after each change, and `end` with the replay
when it is over. Lines that begin with a colon are heartbeats.
"""


@router.get(
    "/{replay_id}/progress",
    operation_id="streamReplayProgress",
    response_class=Response,
    responses={
        200: {"description": _DESCRIPTION, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
        204: {"description": "The replay is over, and the client has its last state."},
        **errors(NOT_FOUND, TOO_MANY_STREAMS, BUSY, UNAVAILABLE),
    },
)
async def stream_progress(
    replay_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Stream the progress of a replay as Server-Sent Events.

    The stream ends after `end`, after ten minutes, and when the server stops. A client that
    reconnects with the `id` of the last event gets newer states; 204 if there can be none.
    """
    replay = await run_in_threadpool(
        services.store.replay, replay_id, of_account=caller.account_filter
    )
    if replay.state in TERMINAL and version_of(replay) == last_event_id:
        return Response(status_code=204)
    return ProgressStream(services.progress_watch, replay, caller.id, last_event_id)


class ProgressStream(StreamingResponse):
    """A response that streams the states of a replay until it is over."""

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
        super().__init__(self._events(), headers=HEADERS, media_type=MEDIA_TYPE)
        self._watch = watch
        self._replay = replay
        self._key_id = key_id
        self._seen_id = last_event_id
        self._heartbeat_s = heartbeat_s
        self._stream_s_max = stream_s_max
        self._polled = PolledReplay(replay)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream to a client until the end, or until it disconnects."""
        with self._watch.stream(self._replay, self._key_id) as self._polled:
            await super().__call__(scope, receive, send)

    async def _events(self) -> AsyncIterator[str]:
        polled = self._polled
        until_s = asyncio.get_running_loop().time() + self._stream_s_max
        yield RETRY
        while True:
            # Read before the replay, so that no change between the two is lost.
            changed = polled.changed
            replay = polled.replay
            if version_of(replay) != self._seen_id:
                self._seen_id = version_of(replay)
                yield _event("progress", replay)
            if replay.state in TERMINAL:
                yield _event("end", replay)
                return
            remaining_s = until_s - asyncio.get_running_loop().time()
            if polled.is_stopped or remaining_s <= 0:
                return
            if not await _is_set(changed, min(self._heartbeat_s, remaining_s)):
                yield _HEARTBEAT


def _event(name: str, replay: Replay) -> str:
    document = ReplayDocument.of(replay, now_ms()).model_dump_json(by_alias=True)
    return f"event: {name}\nid: {version_of(replay)}\ndata: {document}\n\n"


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
