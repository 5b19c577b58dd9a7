"""Routes of replays: ask for one, follow it, pause, resume, cancel it, try its failures again."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from starlette.concurrency import run_in_threadpool

from app.api.access import AccountId, CallerDependency, account_meant
from app.api.doors import DoorsDependency, now_ms
from app.api.dry_run import estimate_replay
from app.api.models.documents import Listing
from app.api.models.replay_record import (
    FailureDocument,
    MoveDocument,
    MovesDocument,
    SampleDocument,
    SamplesDocument,
)
from app.api.models.replays import (
    EstimateDocument,
    ReplayDocument,
    ReplayRequest,
)
from app.api.openapi import refusals
from app.api.paging import Cursor, Limit
from app.api.problems import (
    BUSY,
    FORBIDDEN,
    ILLEGAL_MOVE,
    INVALID_REQUEST,
    KEY_REUSED,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOT_VALIDATED,
    NOTHING_TO_RETRY,
    REPLAY_ACTIVE,
    UNAVAILABLE,
    URL_REFUSED,
    WEBHOOK_NOT_ENABLED,
    WINDOW_REFUSED,
)
from app.api.replay_requests import check_options, queue_replay, queue_retry
from app.domain.model import Replay, ReplayFilter
from app.domain.states import ReplayState

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
    response_model=ReplayDocument,
    responses={
        200: {"model": EstimateDocument, "description": "Of a dry run: what it would bring."},
        **refusals(
            INVALID_REQUEST,
            WINDOW_REFUSED,
            URL_REFUSED,
            NOT_FOUND,
            REPLAY_ACTIVE,
            WEBHOOK_NOT_ENABLED,
            MEDIA_TYPE_REFUSED,
            KEY_REUSED,
            NOT_VALIDATED,
            BUSY,
            UNAVAILABLE,
        ),
    },
)
async def create_replay(
    body: ReplayRequest,
    response: Response,
    doors: DoorsDependency,
    caller: CallerDependency,
    idempotency_key: IdempotencyHeader = None,
) -> ReplayDocument | Response:
    """Replay a window: every event owed to the webhook with `from` <= time < `to` is sent again.

    The window must lie in the retained history and end in the past. A webhook has one active
    replay at a time, and must be enabled: one that is PENDING gets the chance to prove itself
    at once. A repeated Idempotency-Key with the same request gives the replay it gave before;
    with another, it is refused with 422. With `dryRun` nothing is queued, and the answer tells
    what the replay would bring. With the source `archive` the window may be older: the replay then
    waits until an operator's job has restored its events, and `waitsFor` says so.
    """
    check_options(body.new_replay, is_dry_run=body.dry_run)
    if body.dry_run:
        with doors.estimates.place(caller):
            found = await run_in_threadpool(estimate_replay, doors, caller, body.new_replay)
        return Response(found.model_dump_json(by_alias=True), media_type="application/json")
    replay = await queue_replay(doors, caller, body.new_replay, idempotency_key)
    return _queued(replay, response)


def _queued(replay: Replay, response: Response) -> ReplayDocument:
    response.headers["location"] = f"/replays/{replay.id}"
    return ReplayDocument.of(replay, now_ms())


@router.post(
    "/{replay_id}/retry",
    operation_id="retryReplay",
    status_code=202,
    responses=refusals(
        WINDOW_REFUSED,
        NOT_FOUND,
        REPLAY_ACTIVE,
        NOTHING_TO_RETRY,
        ILLEGAL_MOVE,
        WEBHOOK_NOT_ENABLED,
        KEY_REUSED,
        NOT_VALIDATED,
        UNAVAILABLE,
    ),
)
async def retry_replay(
    replay_id: str,
    response: Response,
    doors: DoorsDependency,
    caller: CallerDependency,
    idempotency_key: IdempotencyHeader = None,
) -> ReplayDocument:
    """Send once more what a replay gave up: a new replay, with the same options, of that alone.

    The replay must be over and have failures, and its window must still be retained; of the
    archive, what was restored for it. It goes to the data centre that had the first one, whichever
    is asked.
    """
    replay = await queue_retry(doors, caller, replay_id, idempotency_key)
    return _queued(replay, response)


@router.get("", operation_id="listReplays", responses=refusals(INVALID_REQUEST, FORBIDDEN))
def list_replays(
    doors: DoorsDependency,
    caller: CallerDependency,
    webhook_id: Annotated[str | None, Query(alias="webhookId")] = None,
    state: Annotated[list[ReplayState] | None, Query()] = None,
    account_id: AccountId = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[ReplayDocument]:
    """List replays, the latest first: of one webhook or all, in one state, in several or all."""
    page = doors.store.replays(
        ReplayFilter(frozenset(state or ()), webhook_id),
        cursor,
        limit,
        of_account=account_meant(caller, account_id),
    )
    present_ms = now_ms()
    items = [ReplayDocument.of(replay, present_ms) for replay in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{replay_id}", operation_id="getReplay", responses=refusals(NOT_FOUND))
def get_replay(replay_id: str, doors: DoorsDependency, caller: CallerDependency) -> ReplayDocument:
    """Follow a replay: where it stands, what it delivered, how fast, and when it will be done."""
    return ReplayDocument.of(doors.store.replay(replay_id, of_account=caller.sees), now_ms())


@router.get(
    "/{replay_id}/failures",
    operation_id="listReplayFailures",
    responses=refusals(INVALID_REQUEST, NOT_FOUND),
)
def list_failures(
    replay_id: str,
    doors: DoorsDependency,
    caller: CallerDependency,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[FailureDocument]:
    """List the events a replay gave up, in the order of the log."""
    page = doors.store.failures(replay_id, cursor=cursor, limit=limit, of_account=caller.sees)
    items = [FailureDocument.of(failure) for failure in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{replay_id}/moves", operation_id="listReplayMoves", responses=refusals(NOT_FOUND))
def list_moves(replay_id: str, doors: DoorsDependency, caller: CallerDependency) -> MovesDocument:
    """List what happened to a replay, who moved it and why, the oldest first."""
    moves = doors.store.moves(replay_id, of_account=caller.sees)
    return MovesDocument(items=[MoveDocument.of(move) for move in moves])


@router.get("/{replay_id}/samples", operation_id="listReplaySamples", responses=refusals(NOT_FOUND))
def list_samples(
    replay_id: str, doors: DoorsDependency, caller: CallerDependency
) -> SamplesDocument:
    """List how far a replay was over time, as a plot of its pace needs it, the oldest first."""
    samples = doors.store.samples(replay_id, of_account=caller.sees)
    return SamplesDocument(items=[SampleDocument.of(sample) for sample in samples])


@router.post(
    "/{replay_id}/pause",
    operation_id="pauseReplay",
    responses=refusals(NOT_FOUND, ILLEGAL_MOVE),
)
def pause_replay(
    replay_id: str, doors: DoorsDependency, caller: CallerDependency
) -> ReplayDocument:
    """Pause a replay. Its worker stops within two seconds, and stores how far it came."""
    replay = doors.store.pause_replay(replay_id, of_account=caller.sees, actor=caller.id)
    return ReplayDocument.of(replay, now_ms())


@router.post(
    "/{replay_id}/resume",
    operation_id="resumeReplay",
    responses=refusals(NOT_FOUND, ILLEGAL_MOVE),
)
def resume_replay(
    replay_id: str, doors: DoorsDependency, caller: CallerDependency
) -> ReplayDocument:
    """Let a paused replay go on where it stands, as soon as a worker is free."""
    replay = doors.store.resume_replay(replay_id, of_account=caller.sees, actor=caller.id)
    return ReplayDocument.of(replay, now_ms())


@router.post(
    "/{replay_id}/cancel",
    operation_id="cancelReplay",
    responses=refusals(NOT_FOUND, ILLEGAL_MOVE),
)
def cancel_replay(
    replay_id: str, doors: DoorsDependency, caller: CallerDependency
) -> ReplayDocument:
    """Cancel a replay. Its worker stops within two seconds; what was sent by then stays sent."""
    replay = doors.store.cancel_replay(replay_id, of_account=caller.sees, actor=caller.id)
    return ReplayDocument.of(replay, now_ms())
