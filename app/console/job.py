"""A job's own page: what was asked for, how it goes, what happened to it; and what one may do."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.api.doors import DoorsDependency, now_ms
from app.api.gate import READ_ONLY
from app.api.paging import Cursor
from app.api.replay_progress import event_id
from app.api.replay_requests import queue_retry
from app.console.audit import note_change
from app.console.forms import ChangeForm
from app.console.gate import Viewer, ViewerDependency
from app.console.job_filters import JOBS
from app.console.job_parts import (
    JobView,
    asked_by,
    events_left,
    job_parts,
    possible,
    timeline_part,
)
from app.console.notices import did
from app.console.rendering import environment_of, rendered
from app.domain.model import Failure, Replay, Webhook
from app.store import Store
from app.store.errors import (
    ActiveReplayExists,
    IllegalMove,
    NothingToRetry,
    ReplayNotOver,
    WebhookNotFound,
)
from app.store.pages import Page

FAILURES: Final = 50
"""Of a page. Each may have a kilobyte of an answer."""

_ILLEGAL: Final = 409
"""What the API answers to a move that came too late: the audit tells it alike."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Look:
    """All that the page shows, as one hop to a thread found it."""

    view: JobView
    failures: Page[Failure]
    webhook: Webhook | None


@router.get("/jobs/{replay_id}")
async def job_page(
    replay_id: str,
    request: Request,
    viewer: ViewerDependency,
    doors: DoorsDependency,
    cursor: Cursor = None,
    moves: Annotated[Literal["latest", "all"], Query()] = "latest",
) -> Response:
    """Show a job, with a page of its failures."""
    look = await run_in_threadpool(_look, doors.store, replay_id, cursor, viewer.key.sees)
    view, environment = look.view, environment_of(request)
    return await rendered(
        request,
        "job.html",
        replay=view.replay,
        # Offsets are of the log of its own data centre.
        is_in_this_log=view.replay.origin in ("", doors.settings.origin),
        version=event_id(view.replay),
        parts=job_parts(environment, view, now_ms()),
        asked_by=asked_by(view.moves),
        all_moves=timeline_part(environment, view.moves, None) if moves == "all" else None,
        webhook=look.webhook,
        failures=look.failures,
        is_later_page=cursor is not None,
        # A button that is pressed twice queues one retry.
        once=secrets.token_urlsafe(16),
    )


def _look(store: Store, replay_id: str, cursor: str | None, account: str | None) -> _Look:
    # First the replay, so that what comes with it is as new as its version, or newer.
    replay = store.replay(replay_id, of_account=account)
    view = JobView(replay, store.moves(replay.id), store.samples(replay.id))
    failures = store.failures(replay.id, cursor, FAILURES)
    try:
        webhook = store.webhook(replay.webhook_id)
    except WebhookNotFound:
        webhook = None
    return _Look(view, failures, webhook)


@router.post("/jobs/{replay_id}/pause", operation_id="pauseReplay")
async def pause(
    replay_id: str,
    request: Request,
    viewer: ViewerDependency,
    doors: DoorsDependency,
    _form: ChangeForm,
) -> Response:
    """Pause a job."""
    return await _move(request, viewer, doors.store.pause_replay, replay_id, "pause")


@router.post("/jobs/{replay_id}/resume", operation_id="resumeReplay")
async def resume(
    replay_id: str,
    request: Request,
    viewer: ViewerDependency,
    doors: DoorsDependency,
    _form: ChangeForm,
) -> Response:
    """Let a paused job go on."""
    return await _move(request, viewer, doors.store.resume_replay, replay_id, "resume")


@router.get("/jobs/{replay_id}/cancel")
async def cancel_page(
    replay_id: str, request: Request, viewer: ViewerDependency, doors: DoorsDependency
) -> Response:
    """Ask whether a job is to be cancelled, and say what would be left undone."""
    if not viewer.may_change:
        raise READ_ONLY
    replay = await run_in_threadpool(doors.store.replay, replay_id, of_account=viewer.key.sees)
    if "cancel" not in possible(replay):
        return _to_job(replay.id, "moved-on")
    return await rendered(request, "job_cancel.html", replay=replay, left=events_left(replay))


@router.post("/jobs/{replay_id}/cancel", operation_id="cancelReplay")
async def cancel(
    replay_id: str,
    request: Request,
    viewer: ViewerDependency,
    doors: DoorsDependency,
    _form: ChangeForm,
) -> Response:
    """Cancel a job."""
    return await _move(request, viewer, doors.store.cancel_replay, replay_id, "cancel")


@router.post("/jobs/{replay_id}/retry", operation_id="retryReplay")
async def retry(
    replay_id: str,
    request: Request,
    viewer: ViewerDependency,
    doors: DoorsDependency,
    form: ChangeForm,
) -> Response:
    """Queue a job of what this one gave up, and go on to it."""
    try:
        replay = await queue_retry(doors, viewer.key, replay_id, form["once"] or None)
    except (ActiveReplayExists, ReplayNotOver, NothingToRetry) as refusal:
        note_change(request, viewer.key, "retryReplay", replay_id, _ILLEGAL)
        is_busy = isinstance(refusal, ActiveReplayExists)
        return _to_job(replay_id, "retry-busy" if is_busy else "moved-on")
    note_change(request, viewer.key, "retryReplay", replay_id, 303)
    return _to_job(replay.id, "retry")


async def _move(
    request: Request, viewer: Viewer, move: Callable[..., Replay], replay_id: str, verb: str
) -> Response:
    key, status = viewer.key, 303
    try:
        await run_in_threadpool(move, replay_id, of_account=key.sees, actor=key.id)
    except IllegalMove:
        status = _ILLEGAL
    note_change(request, key, f"{verb}Replay", replay_id, status)
    return _to_job(replay_id, verb if status == 303 else "moved-on")


def _to_job(replay_id: str, code: str) -> Response:
    return RedirectResponse(f"{JOBS}/{replay_id}?{did(code)}", 303)
