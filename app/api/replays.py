"""Routes of replays: ask for one, follow it, cancel it."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from app.api.doors import Doors, DoorsDependency, now_ms
from app.api.models.documents import Listing
from app.api.models.replays import FailureDocument, ReplayDocument, ReplayRequest
from app.api.openapi import refusals
from app.api.paging import Cursor, Limit
from app.api.problems import (
    INVALID_REQUEST,
    KEY_REUSED,
    MEDIA_TYPE_REFUSED,
    NOT_CANCELLABLE,
    NOT_FOUND,
    REPLAY_ACTIVE,
    UNAVAILABLE,
    WINDOW_REFUSED,
)
from app.replay.lateness import disorder_ms
from app.replay.model import IdempotencyKey, NewReplay, Replay
from app.replay.states import ReplayState
from app.replay.windows import check_window

router = APIRouter(prefix="/replays", tags=["replays"])

IdempotencyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[ -~]{1,255}$",
        description="A name for this request: sent again under it, the first replay comes back.",
    ),
]


@router.post(
    "",
    operation_id="createReplay",
    status_code=202,
    responses=refusals(
        INVALID_REQUEST,
        WINDOW_REFUSED,
        NOT_FOUND,
        REPLAY_ACTIVE,
        MEDIA_TYPE_REFUSED,
        KEY_REUSED,
        UNAVAILABLE,
    ),
)
def create_replay(
    body: ReplayRequest,
    response: Response,
    doors: DoorsDependency,
    idempotency_key: IdempotencyHeader = None,
) -> ReplayDocument:
    """Replay a window: every event owed to the webhook with `from` <= time < `to` is sent again.

    The window must lie in the retained history and end in the past. A webhook has one active
    replay at a time. A repeated Idempotency-Key with the same webhook and window gives the
    replay it gave before; with another, it is refused with 422.
    """
    replay = _replay_asked_for(body, idempotency_key, doors)
    response.headers["location"] = f"/replays/{replay.id}"
    return ReplayDocument.of(replay, now_ms())


def _replay_asked_for(body: ReplayRequest, key: str | None, doors: Doors) -> Replay:
    idempotency = None if key is None else _named(key, body)
    # Before the window is judged: by the time a request is repeated, its window may be too old.
    if idempotency is not None and (known := doors.store.replay_named_by(idempotency)):
        return known
    check_window(body.window, now_ms(), doors.settings.history_ms)
    doors.store.webhook(body.webhook_id)
    # What is retained is known to the log alone; the worker will look the offsets up anew.
    doors.history.offsets_for(body.webhook_id, body.window, disorder_ms(doors.settings.lateness_ms))
    replay, _ = doors.store.create_replay(NewReplay(body.webhook_id, body.window), idempotency)
    return replay


def _named(key: str, body: ReplayRequest) -> IdempotencyKey:
    """The key for what was asked, however its times were spelled.

    Source: draft-ietf-httpapi-idempotency-key-header-07, sections 2.4 and 2.7.
    """
    return IdempotencyKey.of(key, f"{body.webhook_id}\n{body.from_ms}\n{body.to_ms}".encode())


@router.get("", operation_id="listReplays", responses=refusals(INVALID_REQUEST))
def list_replays(
    doors: DoorsDependency,
    webhook_id: Annotated[str | None, Query(alias="webhookId")] = None,
    state: ReplayState | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[ReplayDocument]:
    """List replays, the latest first: of one webhook or all, in one state or all."""
    page = doors.store.replays(webhook_id=webhook_id, state=state, cursor=cursor, limit=limit)
    present_ms = now_ms()
    items = [ReplayDocument.of(replay, present_ms) for replay in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{replay_id}", operation_id="getReplay", responses=refusals(NOT_FOUND))
def get_replay(replay_id: str, doors: DoorsDependency) -> ReplayDocument:
    """Follow a replay: where it stands, what it delivered, how fast, and when it will be done."""
    return ReplayDocument.of(doors.store.replay(replay_id), now_ms())


@router.get(
    "/{replay_id}/failures",
    operation_id="listReplayFailures",
    responses=refusals(INVALID_REQUEST, NOT_FOUND),
)
def list_failures(
    replay_id: str, doors: DoorsDependency, cursor: Cursor = None, limit: Limit = 50
) -> Listing[FailureDocument]:
    """List the events a replay gave up, in the order of the log."""
    page = doors.store.failures(replay_id, cursor=cursor, limit=limit)
    items = [FailureDocument.of(failure) for failure in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.post(
    "/{replay_id}/cancel",
    operation_id="cancelReplay",
    responses=refusals(NOT_FOUND, NOT_CANCELLABLE),
)
def cancel_replay(replay_id: str, doors: DoorsDependency) -> ReplayDocument:
    """Cancel a replay. Its worker stops within two seconds; what was sent by then stays sent."""
    return ReplayDocument.of(doors.store.cancel_replay(replay_id), now_ms())
