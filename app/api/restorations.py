"""Routes of the restore job: the replays that wait for a restore, and its results."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.admission import CallerDependency, OperatorOnly
from app.api.models.replays import ReplayDocument
from app.api.models.restorations import (
    AwaitedReplayDocument,
    Missing,
    NeededDocument,
    Restoration,
    RestorationsDocument,
)
from app.api.openapi import ANY_ERROR, errors
from app.domain.model import OffsetRange
from app.http.dependencies import ServicesDependency
from app.http.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOTHING_TO_RESTORE,
    UNAVAILABLE,
)
from app.services import restores
from app.services.services import now_ms

AT_A_TIME_MAX = 1_000

router = APIRouter(tags=["operations"], dependencies=[OperatorOnly], responses=ANY_ERROR)


@router.get(
    "/restorations",
    operation_id="listRestorations",
    responses=errors(INVALID_REQUEST, FORBIDDEN),
)
def list_restorations(
    services: ServicesDependency,
    limit: Annotated[int, Query(ge=1, le=AT_A_TIME_MAX)] = AT_A_TIME_MAX,
) -> RestorationsDocument:
    """List the replays of this data centre that wait for a restore, the oldest first.

    `needed` has the offsets of `delivery_archive` below which records may be deleted.
    """
    found = services.store.awaiting_restore(services.settings.origin, limit)
    items = [
        AwaitedReplayDocument.of(replay, replay.awaits)
        for replay in found.replays
        if replay.awaits is not None
    ]
    needed = [
        NeededDocument(partition=partition, start_offset=start)
        for partition, start in sorted(found.needed_from.items())
    ]
    return RestorationsDocument(
        items=items, further_partitions=sorted(found.further_partitions), needed=needed
    )


@router.put(
    "/replays/{replay_id}/restoration",
    operation_id="putRestoration",
    responses=errors(
        INVALID_REQUEST, FORBIDDEN, NOT_FOUND, NOTHING_TO_RESTORE, MEDIA_TYPE_REFUSED, UNAVAILABLE
    ),
)
def put_restoration(
    replay_id: str, body: Restoration, services: ServicesDependency, caller: CallerDependency
) -> ReplayDocument:
    """Report that all events of a replay are in `delivery_archive`: a worker may claim it.

    The offsets must be of the replay's partition, and in the topic. A repeated report changes
    nothing.
    """
    offsets = OffsetRange(body.partition, body.start_offset, body.end_offset)
    replay = restores.record_restore(services, caller, replay_id, offsets)
    return ReplayDocument.of(replay, now_ms())


@router.put(
    "/replays/{replay_id}/restoration/missing",
    operation_id="putRestorationMissing",
    responses=errors(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, NOTHING_TO_RESTORE, MEDIA_TYPE_REFUSED),
)
def put_missing(
    replay_id: str, body: Missing, services: ServicesDependency, caller: CallerDependency
) -> ReplayDocument:
    """Report what of a replay's window could not be restored: it keeps waiting, and shows it."""
    replay = restores.record_missing(services, caller, replay_id, body.missing)
    return ReplayDocument.of(replay, now_ms())
