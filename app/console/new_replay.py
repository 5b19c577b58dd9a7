"""Asking for a replay: a form, what it would bring, and its start, in this order."""

import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.api.doors import Doors, DoorsDependency, now_ms
from app.api.dry_run import estimate_replay
from app.api.models.replays import EstimateDocument, ReplayRequest
from app.api.problems import INVALID_REQUEST, UNAVAILABLE, FieldError, Problem
from app.api.refusals import problem_of
from app.api.replay_requests import check, check_options, queue_replay
from app.api.request_log import LOGGER
from app.console.addresses import NEW_REPLAY
from app.console.audit import note_change
from app.console.forms import ChangeForm
from app.console.gate import ChangerDependency, Viewer, ViewerDependency
from app.console.job_filters import JOBS
from app.console.notices import did
from app.console.refused_forms import REFUSALS, Refusal, read_body, refusal_of
from app.console.rendering import rendered
from app.console.replay_forms import (
    DEFAULTS,
    FIELDS,
    LAST,
    body_of,
    fields_of,
    fields_of_replay,
    last_window,
)
from app.domain.accounts import ApiKey
from app.domain.filters import ReplayFilter
from app.domain.model import NewReplay, Webhook
from app.domain.options import Source
from app.domain.states import ACTIVE
from app.store import Store
from app.store.errors import ActiveReplayExists, NotFound

WEBHOOKS_MAX: Final = 100
"""Of more, nobody finds the one they mean in a list: its id is asked for instead."""

_ONCE_CHARACTERS_MAX: Final = 64

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Preview:
    """A replay before it is started: what it would bring, unless only its restore can tell.

    `active_id` is the replay that its webhook has, and that would have to be over first.
    """

    new: NewReplay
    webhook: Webhook
    estimate: EstimateDocument | None
    active_id: str | None


@router.get("/replays/new")
async def form_page(
    request: Request, doors: DoorsDependency, viewer: ChangerDependency
) -> Response:
    """Ask what is to be replayed; the query may say some of it, or name a job to be like."""
    query = request.query_params
    clone_of = query.get("cloneOf")
    typed = dict(DEFAULTS)
    if clone_of:
        replay = await run_in_threadpool(doors.store.replay, clone_of, of_account=viewer.key.sees)
        typed |= fields_of_replay(replay)
    typed |= fields_of({name: query[name] for name in FIELDS if name in query})
    return await _form(request, doors, viewer, typed, None)


@router.post("/replays/new")
async def preview(
    request: Request, doors: DoorsDependency, viewer: ViewerDependency, form: ChangeForm
) -> Response:
    """Say what a replay would bring, and ask whether it is to be started."""
    typed = {name: form[name] for name in FIELDS}
    try:
        if last := form["last"]:
            typed |= last_window(last, now_ms())
        new = read_body(ReplayRequest, body_of(typed)).new_replay
        found = await _preview(doors, viewer.key, new)
    except REFUSALS as error:
        return await _form(request, doors, viewer, typed, error)
    return await rendered(
        request,
        "replay_preview.html",
        preview=found,
        typed=typed,
        once=secrets.token_urlsafe(16),
        change=f"{NEW_REPLAY}?{urlencode(typed)}",
    )


@router.post("/replays", operation_id="createReplay")
async def start(
    request: Request, doors: DoorsDependency, viewer: ViewerDependency, form: ChangeForm
) -> Response:
    """Queue a replay: once, however often its button is pressed."""
    typed = {name: form[name] for name in FIELDS}
    once = form["once"]
    if not 0 < len(once) <= _ONCE_CHARACTERS_MAX:
        allowed = f"1 to {_ONCE_CHARACTERS_MAX} characters"
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("once", None, allowed)])
    try:
        new = read_body(ReplayRequest, body_of(typed)).new_replay
        check_options(new, is_dry_run=False)
        replay = await queue_replay(doors, viewer.key, new, once)
    except REFUSALS as error:
        response = await _form(request, doors, viewer, typed, error)
        note_change(request, viewer.key, "createReplay", None, response.status_code)
        return response
    note_change(request, viewer.key, "createReplay", replay.id, 303)
    return RedirectResponse(f"{JOBS}/{replay.id}?{did('start')}", 303)


async def _form(
    request: Request,
    doors: Doors,
    viewer: Viewer,
    typed: dict[str, str],
    error: Exception | None,
) -> Response:
    """The form, with what was typed; of one that was refused, with why."""
    refusal = None if error is None else _refusal(error)
    webhooks = await run_in_threadpool(_webhooks, doors.store, viewer.key, typed["webhookId"])
    return await rendered(
        request,
        "replay_new.html",
        200 if refusal is None else refusal.status,
        typed=typed,
        defaults=DEFAULTS,
        refusal=refusal,
        active_id=error.replay_id if isinstance(error, ActiveReplayExists) else None,
        webhooks=webhooks,
        last=LAST,
        history_days=doors.settings.history_days,
    )


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, NotFound):
        return Refusal(404, "", {"webhookId": str(error)})
    problem = problem_of(error, "")
    if problem.kind.status >= 500:
        if problem.kind is UNAVAILABLE:
            LOGGER.warning("unavailable", extra={"cause": str(error)})
        # It may answer the next time: what was typed is kept.
        return Refusal(problem.kind.status, f"{problem.detail}; try again")
    return refusal_of(error, FIELDS)


def _webhooks(store: Store, key: ApiKey, chosen: str) -> tuple[Webhook, ...] | None:
    """The webhooks to choose from; None where an id is to be typed."""
    page = store.webhooks(limit=WEBHOOKS_MAX, of_account=key.sees)
    is_listed = not chosen or any(webhook.id == chosen for webhook in page.items)
    return page.items if page.next_cursor is None and page.items and is_listed else None


async def _preview(doors: Doors, key: ApiKey, new: NewReplay) -> Preview:
    """What a replay would bring.

    Raises:
        Those of `REFUSALS`.
    """
    check_options(new, is_dry_run=False)
    estimate = None
    if new.source is Source.LOG:
        with doors.estimates.place(key):
            estimate = await run_in_threadpool(estimate_replay, doors, key, new)
    return await run_in_threadpool(_with_webhook, doors, key, new, estimate)


def _with_webhook(
    doors: Doors, key: ApiKey, new: NewReplay, estimate: EstimateDocument | None
) -> Preview:
    webhook = check(doors, key, new)
    wanted = ReplayFilter(ACTIVE, webhook.id)
    active = doors.store.replays(wanted, limit=1, of_account=key.sees).items
    return Preview(new, webhook, estimate, active[0].id if active else None)
