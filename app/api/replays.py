"""Routes of replays: create, read, pause, resume, cancel and retry."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response

from app.api.admission import CallerDependency, caller_of
from app.api.direct_route import DirectRoute
from app.api.models.documents import Listing, respond
from app.api.models.estimates import EstimateDocument
from app.api.models.replays import (
    FailureDocument,
    MoveDocument,
    MovesDocument,
    ReplayDocument,
    SampleDocument,
    SamplesDocument,
)
from app.api.openapi import ANY_ERROR, errors
from app.domain.model import Replay, ReplayFilter
from app.domain.options import ReplayReason
from app.domain.states import ReplayState
from app.http.dependencies import AccountId, Cursor, Limit, ServicesDependency, services_of
from app.http.problems import (
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
from app.http.request_bodies import ReplayRequest
from app.services import replays
from app.services.authentication import select_account
from app.services.services import now_ms

router = APIRouter(prefix="/replays", tags=["replays"], responses=ANY_ERROR)

IdempotencyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[ -~]{1,255}$",
        description="A repeated request with the same key returns the first replay.",
    ),
]


@router.post(
    "",
    operation_id="createReplay",
    status_code=202,
    response_model=ReplayDocument,
    responses={
        200: {"model": EstimateDocument, "description": "The estimate of a dry run."},
        **errors(
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
    services: ServicesDependency,
    caller: CallerDependency,
    idempotency_key: IdempotencyHeader = None,
) -> ReplayDocument | Response:
    """Create a replay: every event of the webhook with `from` <= time < `to` is sent again.

    The window must lie in the retained history and end in the past. A webhook has at most one
    active replay, and must be ENABLED; a PENDING one is verified first. A repeated Idempotency-Key
    with the same request returns the same replay; with a different request it is rejected with
    422. With `dryRun` nothing is created, and the response is an estimate. With the source
    `archive` the window may be older: the replay waits until an operator's job has restored its
    events, see `waitsFor`.
    """
    if body.dry_run:
        estimate = await replays.estimate_replay(services, caller, body.new_replay)
        return respond(EstimateDocument.model_validate(estimate))
    replay = await replays.create_replay(services, caller, body.new_replay, idempotency_key)
    return _created(replay, response)


def _created(replay: Replay, response: Response) -> ReplayDocument:
    response.headers["location"] = f"/replays/{replay.id}"
    return ReplayDocument.of(replay, now_ms())


@router.post(
    "/{replay_id}/retry",
    operation_id="retryReplay",
    status_code=202,
    responses=errors(
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
    services: ServicesDependency,
    caller: CallerDependency,
    idempotency_key: IdempotencyHeader = None,
) -> ReplayDocument:
    """Create a replay of what another one did not deliver, with its options and data centre.

    That is its failures and, if it FAILED or was CANCELLED, the events that it did not reach. The
    replay must be over and have some of either. Its window must still be retained; with the source
    `archive`, its restored events must be.
    """
    replay = await replays.retry_replay(services, caller, replay_id, idempotency_key)
    return _created(replay, response)


def replay_filter(
    webhook_id: Annotated[str | None, Query(alias="webhookId")] = None,
    state: Annotated[list[ReplayState] | None, Query()] = None,
    with_failures: Annotated[
        bool,
        Query(
            alias="withFailures",
            description="Only replays with failed events; with `state=COMPLETED`, those that "
            "completed with failures.",
        ),
    ] = False,
    reason: Annotated[
        ReplayReason | None, Query(description="Only replays that were created because of it.")
    ] = None,
) -> ReplayFilter:
    """The filter of a list, from its query parameters."""
    states = frozenset(state or ())
    return ReplayFilter(states, webhook_id, with_failures=with_failures, reason=reason)


@router.get("", operation_id="listReplays", responses=errors(INVALID_REQUEST, FORBIDDEN))
def list_replays(
    services: ServicesDependency,
    caller: CallerDependency,
    wanted: Annotated[ReplayFilter, Depends(replay_filter)],
    account_id: AccountId = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[ReplayDocument]:
    """List replays, the latest first, by webhook, states, reason, and whether events failed."""
    of_account = select_account(caller, account_id)
    page = services.store.replays(wanted, cursor, limit, of_account=of_account)
    present_ms = now_ms()
    items = [ReplayDocument.of(replay, present_ms) for replay in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


async def get_replay(request: Request, replay_id: str) -> Response:
    """Get a replay: its state, progress, rate and estimated end."""
    services, caller = services_of(request), caller_of(request)

    def read() -> Response:
        replay = services.store.replay(replay_id, of_account=caller.account_filter)
        return respond(ReplayDocument.of(replay, now_ms()))

    return await to_thread.run_sync(read)


router.add_api_route(
    "/{replay_id}",
    get_replay,
    route_class_override=DirectRoute,
    operation_id="getReplay",
    response_model=ReplayDocument,
    responses=errors(NOT_FOUND),
)


@router.get(
    "/{replay_id}/failures",
    operation_id="listReplayFailures",
    responses=errors(INVALID_REQUEST, NOT_FOUND),
)
def list_failures(
    replay_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[FailureDocument]:
    """List the events that a replay could not deliver, in the order of the log."""
    page = services.store.failures(
        replay_id, cursor=cursor, limit=limit, of_account=caller.account_filter
    )
    items = [FailureDocument.model_validate(failure) for failure in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{replay_id}/moves", operation_id="listReplayMoves", responses=errors(NOT_FOUND))
def list_moves(
    replay_id: str, services: ServicesDependency, caller: CallerDependency
) -> MovesDocument:
    """List the state changes of a replay with actor and reason, the oldest first."""
    moves = services.store.moves(replay_id, of_account=caller.account_filter)
    return MovesDocument(items=[MoveDocument.model_validate(move) for move in moves])


@router.get("/{replay_id}/samples", operation_id="listReplaySamples", responses=errors(NOT_FOUND))
def list_samples(
    replay_id: str, services: ServicesDependency, caller: CallerDependency
) -> SamplesDocument:
    """List samples of a replay's progress over time, the oldest first."""
    samples = services.store.samples(replay_id, of_account=caller.account_filter)
    return SamplesDocument(items=[SampleDocument.model_validate(sample) for sample in samples])


@router.post(
    "/{replay_id}/pause",
    operation_id="pauseReplay",
    responses=errors(NOT_FOUND, ILLEGAL_MOVE),
)
def pause_replay(
    replay_id: str, services: ServicesDependency, caller: CallerDependency
) -> ReplayDocument:
    """Pause a replay. Its worker stops within two seconds, and stores the checkpoint."""
    replay = services.store.pause_replay(
        replay_id, of_account=caller.account_filter, actor=caller.actor
    )
    return ReplayDocument.of(replay, now_ms())


@router.post(
    "/{replay_id}/resume",
    operation_id="resumeReplay",
    responses=errors(NOT_FOUND, ILLEGAL_MOVE, REPLAY_ACTIVE),
)
def resume_replay(
    replay_id: str, services: ServicesDependency, caller: CallerDependency
) -> ReplayDocument:
    """Resume a PAUSED or FAILED replay at its checkpoint, as soon as a worker is free."""
    replay = replays.resume_replay(
        services, replay_id, of_account=caller.account_filter, actor=caller.actor
    )
    return ReplayDocument.of(replay, now_ms())


@router.post(
    "/{replay_id}/cancel",
    operation_id="cancelReplay",
    responses=errors(NOT_FOUND, ILLEGAL_MOVE),
)
def cancel_replay(
    replay_id: str, services: ServicesDependency, caller: CallerDependency
) -> ReplayDocument:
    """Cancel a replay. Its worker stops within two seconds; events sent by then are delivered."""
    replay = services.store.cancel_replay(
        replay_id, of_account=caller.account_filter, actor=caller.actor
    )
    return ReplayDocument.of(replay, now_ms())
