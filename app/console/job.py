"""The page of a job, and the actions on it."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.flash_messages import flash_query
from app.console.job_parts import (
    JobView,
    allowed_actions,
    created_by,
    estimated_events_left,
    job_parts,
    timeline_part,
)
from app.console.page_requests import ChangeRequest, EditorRequest, Submission, ViewerRequest
from app.console.urls import DELIVERIES, JOBS, PREFIX
from app.domain.deliveries import DeliveryPlace, format_delivery_id
from app.domain.model import Failure, Replay, Webhook
from app.domain.options import Source
from app.http.dependencies import Cursor
from app.services.progress_watch import version_of
from app.services.replays import resume_replay, retry_replay
from app.services.services import now_ms
from app.store import Store
from app.store.errors import (
    ActiveReplayExists,
    IllegalMove,
    NothingToRetry,
    ReplayNotOver,
    WebhookNotFound,
)
from app.store.pages import Page

FAILURES_PER_PAGE: Final = 50
"""Each failure may include a kilobyte of a response."""

_CONFLICT: Final = 409
"""The API's status for an action that the state does not allow. The audit log uses it too."""

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class _JobDetails:
    """Everything on the page, read in one call on a worker thread."""

    view: JobView
    failures: Page[Failure]
    webhook: Webhook | None


@router.get("/jobs/{replay_id}")
async def job_page(
    replay_id: str,
    request: ViewerRequest,
    cursor: Cursor = None,
    moves: Annotated[Literal["latest", "all"], Query()] = "latest",
) -> Response:
    """Show a job with a page of its failures."""
    details = await run_in_threadpool(
        _read_details, request.services.store, replay_id, cursor, request.key.account_filter
    )
    view, origin = details.view, request.services.settings.origin
    return await request.render(
        "job.html",
        replay=view.replay,
        # Offsets are those of the log in the replay's data centre.
        is_in_this_log=view.replay.origin in ("", origin),
        version=version_of(view.replay),
        parts=job_parts(request.templates, view, now_ms()),
        created_by=created_by(view.moves),
        all_moves=timeline_part(request.templates, view.moves, None) if moves == "all" else None,
        webhook=details.webhook,
        failures=details.failures,
        delivery_url=partial(_delivery_url, view.replay, origin),
        is_later_page=cursor is not None,
        # The idempotency key of the retry button.
        once=secrets.token_urlsafe(16),
    )


def _delivery_url(replay: Replay, origin: str, failure: Failure) -> str | None:
    """Return the URL of the delivery that failed; None if this data centre's log has none."""
    is_here = replay.source is Source.LOG and replay.origin in ("", origin)
    if replay.offsets is None or not is_here:
        return None
    place = DeliveryPlace(origin, replay.offsets.partition, failure.offset)
    return f"{DELIVERIES}/{format_delivery_id(place)}"


def _read_details(
    store: Store, replay_id: str, cursor: str | None, account: str | None
) -> _JobDetails:
    # Read the replay first: everything else is then at least as new as its version.
    replay = store.replay(replay_id, of_account=account)
    view = JobView(replay, store.moves(replay.id), store.samples(replay.id))
    failures = store.failures(replay.id, cursor, FAILURES_PER_PAGE)
    try:
        webhook = store.webhook(replay.webhook_id)
    except WebhookNotFound:
        webhook = None
    return _JobDetails(view, failures, webhook)


@router.post("/jobs/{replay_id}/pause", operation_id="pauseReplay")
async def pause(replay_id: str, request: ChangeRequest) -> Response:
    """Pause a job."""
    return await _move(request, request.services.store.pause_replay, replay_id, "pause")


@router.post("/jobs/{replay_id}/resume", operation_id="resumeReplay")
async def resume(replay_id: str, request: ChangeRequest) -> Response:
    """Resume a paused or failed job."""
    return await _move(request, partial(resume_replay, request.services), replay_id, "resume")


@router.get("/jobs/{replay_id}/cancel")
async def cancel_page(replay_id: str, request: EditorRequest) -> Response:
    """Ask for confirmation, with the number of events that will not be sent."""
    replay = await run_in_threadpool(
        request.services.store.replay, replay_id, of_account=request.key.account_filter
    )
    if "cancel" not in allowed_actions(replay):
        return _redirect_to_job(replay.id, "state-changed")
    left = estimated_events_left(replay)
    return await request.render("job_cancel.html", replay=replay, left=left)


@router.post("/jobs/{replay_id}/cancel", operation_id="cancelReplay")
async def cancel(replay_id: str, request: ChangeRequest) -> Response:
    """Cancel a job."""
    return await _move(request, request.services.store.cancel_replay, replay_id, "cancel")


@router.post("/jobs/{replay_id}/retry", operation_id="retryReplay")
async def retry(replay_id: str, request: ChangeRequest) -> Response:
    """Queue a job for the failures of this one, and redirect to it."""
    try:
        replay = await retry_replay(
            request.services, request.key, replay_id, request.form["once"] or None
        )
    except (ActiveReplayExists, ReplayNotOver, NothingToRetry) as error:
        request.log_change(_CONFLICT)
        is_busy = isinstance(error, ActiveReplayExists)
        return _redirect_to_job(replay_id, "retry-busy" if is_busy else "state-changed")
    request.log_change(303)
    return _redirect_to_job(replay.id, "retry")


async def _move(
    request: Submission, move: Callable[..., Replay], replay_id: str, verb: str
) -> Response:
    key, status, code = request.key, 303, verb
    try:
        await run_in_threadpool(move, replay_id, of_account=key.account_filter, actor=key.actor)
    except IllegalMove:
        status, code = _CONFLICT, "state-changed"
    except ActiveReplayExists:
        status, code = _CONFLICT, "resume-busy"
    request.log_change(status)
    return _redirect_to_job(replay_id, code)


def _redirect_to_job(replay_id: str, code: str) -> Response:
    return RedirectResponse(f"{JOBS}/{replay_id}?{flash_query(code)}", 303)
