"""Routes of the restore job: what waits for it, and what became of that."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.access import CallerDependency, OperatorOnly
from app.api.doors import Doors, DoorsDependency, now_ms
from app.api.models.replays import ReplayDocument
from app.api.models.restorations import (
    AwaitedReplayDocument,
    Missing,
    NeededDocument,
    Restoration,
    RestorationsDocument,
)
from app.api.openapi import refusals
from app.api.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOTHING_TO_RESTORE,
    UNAVAILABLE,
    FieldError,
    Problem,
)
from app.domain.model import OffsetRange, Replay
from app.log.topics import DELIVERY_ARCHIVE

AT_A_TIME_MAX = 1_000

router = APIRouter(tags=["operations"], dependencies=[OperatorOnly])


@router.get(
    "/restorations",
    operation_id="listRestorations",
    responses=refusals(INVALID_REQUEST, FORBIDDEN),
)
def list_restorations(
    doors: DoorsDependency,
    limit: Annotated[int, Query(ge=1, le=AT_A_TIME_MAX)] = AT_A_TIME_MAX,
) -> RestorationsDocument:
    """List the replays of this data centre that wait for a restore, those that wait longest first.

    And what of `delivery_archive` is still needed: what lies below may be deleted.
    """
    found = doors.store.awaiting_restore(doors.settings.origin, limit)
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
    responses=refusals(
        INVALID_REQUEST, FORBIDDEN, NOT_FOUND, NOTHING_TO_RESTORE, MEDIA_TYPE_REFUSED, UNAVAILABLE
    ),
)
def put_restoration(
    replay_id: str, body: Restoration, doors: DoorsDependency, caller: CallerDependency
) -> ReplayDocument:
    """Say that all that a replay waits for is in `delivery_archive`: a worker may claim it.

    The offsets must be of the partition that it waits for, and there. To say the same again
    changes nothing.
    """
    found = _of_here(doors, replay_id)
    offsets = OffsetRange(body.partition, body.start_offset, body.end_offset)
    # What was said before may be deleted by now, and is no mistake.
    if found.offsets != offsets:
        _check_place(doors, found, offsets)
    replay = doors.store.record_restore(replay_id, offsets, actor=caller.id)
    return ReplayDocument.of(replay, now_ms())


@router.put(
    "/replays/{replay_id}/restoration/missing",
    operation_id="putRestorationMissing",
    responses=refusals(
        INVALID_REQUEST, FORBIDDEN, NOT_FOUND, NOTHING_TO_RESTORE, MEDIA_TYPE_REFUSED
    ),
)
def put_missing(
    replay_id: str, body: Missing, doors: DoorsDependency, caller: CallerDependency
) -> ReplayDocument:
    """Say what of a replay's window could not be found: it waits on, and shows that."""
    _of_here(doors, replay_id)
    replay = doors.store.record_missing_records(replay_id, body.missing, actor=caller.id)
    return ReplayDocument.of(replay, now_ms())


def _of_here(doors: Doors, replay_id: str) -> Replay:
    replay = doors.store.replay(replay_id)
    if replay.origin != doors.settings.origin:
        detail = f"replay {replay_id!r} is restored in {replay.origin!r}: its API is to be told"
        raise Problem(NOTHING_TO_RESTORE, detail)
    return replay


def _check_place(doors: Doors, replay: Replay, offsets: OffsetRange) -> None:
    if replay.awaits is None:
        return  # whatever its place, as the store will say
    if offsets.partition != replay.awaits.partition:
        allowed = f"{replay.awaits.partition}, where its events were"
        refused = FieldError("partition", offsets.partition, allowed)
        raise Problem.of_fields(INVALID_REQUEST, [refused])
    held = doors.history.bounds(DELIVERY_ARCHIVE, offsets.partition)
    if not held.low <= offsets.start <= offsets.end <= held.high:
        allowed = f"{held.low} to endOffset, and that up to {held.high}: what the topic holds"
        refused = FieldError("startOffset", offsets.start, allowed)
        raise Problem.of_fields(INVALID_REQUEST, [refused])
