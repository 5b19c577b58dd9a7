"""Creating a replay: the form, a preview with a dry run, and the start."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.flash_messages import flash_query
from app.console.formats import format_field_time, parse_field_time
from app.console.forms import REJECTIONS, FormRejection, form_rejection, parse_body
from app.console.page_requests import ChangeRequest, EditorRequest, PageRequest
from app.console.replay_forms import (
    DEFAULTS,
    FIELDS,
    LAST,
    last_window,
    prefilled_fields,
    replay_fields,
    request_body,
)
from app.console.urls import JOBS, NEW_REPLAY, PREFIX
from app.domain.accounts import ApiKey
from app.domain.model import NewReplay, ReplayFilter, Webhook, Window
from app.domain.options import Source
from app.domain.states import ACTIVE
from app.domain.windows import MINUTE_MS, TimeUnreadable
from app.http.error_table import problem_of
from app.http.problems import INVALID_REQUEST, UNAVAILABLE, Problem
from app.http.request_bodies import ReplayRequest
from app.http.request_log import LOGGER
from app.log.errors import LogUnavailable, WindowNotRetained
from app.services.errors import FieldError
from app.services.replays import (
    ReplayEstimate,
    check_options,
    check_replay,
    create_replay,
    estimate_replay,
)
from app.services.services import Services, now_ms
from app.store import Store
from app.store.errors import ActiveReplayExists, NotFound

WEBHOOKS_MAX: Final = 100
"""The longest list of webhooks to choose from. With more, the form has an input for the id."""

FORM_MS: Final = 5 * MINUTE_MS
"""How long before its start a prefilled window remains in the history."""

_KEY_CHARACTERS_MAX: Final = 64

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class ReplayPreview:
    """A replay before its start. An archive replay has no estimate.

    `active_id` is the active replay of the webhook, which blocks the start.
    """

    new: NewReplay
    webhook: Webhook
    estimate: ReplayEstimate | None
    active_id: str | None


@router.get("/replays/new")
async def form_page(request: EditorRequest) -> Response:
    """Show the form. The query may prefill fields, or name a job to clone."""
    services, query = request.services, request.http.query_params
    clone_of = query.get("cloneOf")
    typed = dict(DEFAULTS)
    if clone_of:
        replay = await run_in_threadpool(
            services.store.replay, clone_of, of_account=request.key.account_filter
        )
        typed |= replay_fields(replay)
    typed |= prefilled_fields({name: query[name] for name in FIELDS if name in query})
    available_from_ms = None
    if "from" in query and typed["source"] == Source.LOG:
        available_from_ms = await run_in_threadpool(_available_from_ms, services, typed)
    if available_from_ms is not None:
        typed["from"] = format_field_time(available_from_ms)
    is_shortened = available_from_ms is not None
    return await _render_form(request, typed, None, is_shortened=is_shortened)


@router.post("/replays/new")
async def preview_page(request: ChangeRequest) -> Response:
    """Show a dry run of the replay, with a button to start it."""
    typed = {name: request.form[name] for name in FIELDS}
    try:
        if last := request.form["last"]:
            typed |= last_window(last, now_ms())
        new = parse_body(ReplayRequest, request_body(typed)).new_replay
        preview = await _preview(request.services, request.key, new)
    except REJECTIONS as error:
        return await _render_form(request, typed, error)
    return await request.render(
        "replay_preview.html",
        preview=preview,
        typed=typed,
        once=secrets.token_urlsafe(16),
        change=f"{NEW_REPLAY}?{urlencode(typed)}",
    )


@router.post("/replays", operation_id="createReplay")
async def start(request: ChangeRequest) -> Response:
    """Queue a replay. The form's idempotency key prevents a second one."""
    typed = {name: request.form[name] for name in FIELDS}
    once = request.form["once"]
    if not 0 < len(once) <= _KEY_CHARACTERS_MAX:
        allowed = f"1 to {_KEY_CHARACTERS_MAX} characters"
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("once", None, allowed)])
    try:
        new = parse_body(ReplayRequest, request_body(typed)).new_replay
        replay = await create_replay(request.services, request.key, new, once)
    except REJECTIONS as error:
        response = await _render_form(request, typed, error)
        request.log_change(response.status_code)
        return response
    return request.redirect(f"{JOBS}/{replay.id}?{flash_query('start')}", replay.id)


def _available_from_ms(services: Services, typed: Mapping[str, str]) -> int | None:
    """The first time of a window that can still be replayed; None if all or nothing of it can.

    Missed hours have links to this form: the history may end within the earliest of them, or has
    moved on since the page with the link was loaded. Without the log, the history alone counts.
    """
    try:
        window = Window(parse_field_time(typed["from"]), parse_field_time(typed["to"]))
    except TimeUnreadable:
        return None
    from_ms = max(window.from_ms, now_ms() - services.settings.history_ms + FORM_MS)
    if from_ms >= window.to_ms:
        return None
    with suppress(LogUnavailable):
        try:
            services.history.offsets_for(typed["webhookId"], Window(from_ms, window.to_ms), 0)
        except WindowNotRetained as refusal:
            from_ms = refusal.available_from_ms
    return from_ms if window.from_ms < from_ms < window.to_ms else None


async def _render_form(
    request: PageRequest,
    typed: dict[str, str],
    error: Exception | None,
    *,
    is_shortened: bool = False,
) -> Response:
    rejection = None if error is None else _rejection(error)
    webhooks = await run_in_threadpool(
        _webhook_choices, request.services.store, request.key, typed["webhookId"]
    )
    return await request.render_form(
        "replay_new.html",
        rejection,
        typed=typed,
        defaults=DEFAULTS,
        active_id=error.replay_id if isinstance(error, ActiveReplayExists) else None,
        webhooks=webhooks,
        last=LAST,
        history_days=request.services.settings.history_days,
        is_shortened=is_shortened,
    )


def _rejection(error: Exception) -> FormRejection:
    if isinstance(error, NotFound):
        return FormRejection(404, "", {"webhookId": str(error)})
    problem = problem_of(error)
    if problem.kind.status >= 500:
        if problem.kind is UNAVAILABLE:
            LOGGER.warning("unavailable", extra={"cause": str(error)})
        # The error may be transient, so the form keeps its values.
        return FormRejection(problem.kind.status, f"{problem.detail}; try again")
    return form_rejection(error, FIELDS)


def _webhook_choices(store: Store, key: ApiKey, chosen: str) -> tuple[Webhook, ...] | None:
    """Return the webhooks to choose from; None if the form needs an input for the id."""
    page = store.webhooks(limit=WEBHOOKS_MAX, of_account=key.account_filter)
    is_listed = not chosen or any(webhook.id == chosen for webhook in page.items)
    return page.items if page.next_cursor is None and page.items and is_listed else None


async def _preview(services: Services, key: ApiKey, new: NewReplay) -> ReplayPreview:
    """Return the preview of a replay.

    Raises:
        One of `REJECTIONS`: the replay cannot be created.
    """
    check_options(new, is_dry_run=False)
    estimate = None
    if new.source is Source.LOG:
        estimate = await estimate_replay(services, key, new)
    return await run_in_threadpool(_read_preview, services, key, new, estimate)


def _read_preview(
    services: Services, key: ApiKey, new: NewReplay, estimate: ReplayEstimate | None
) -> ReplayPreview:
    webhook = check_replay(services, key, new)
    wanted = ReplayFilter(ACTIVE, webhook.id)
    active = services.store.replays(wanted, limit=1, of_account=key.account_filter).items
    return ReplayPreview(new, webhook, estimate, active[0].id if active else None)
