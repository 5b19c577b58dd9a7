"""Use cases of archive replays: what to restore, and what the restore job reports."""

from app.domain.accounts import ApiKey
from app.domain.model import AwaitedRestore, NewReplay, OffsetRange, Replay
from app.domain.restores import all_arrived_by_ms
from app.log.topics import DELIVERY_ARCHIVE
from app.services.errors import FieldError, InvalidRequest, NotRestoredHere, RestoreExpired
from app.services.services import Services, now_ms


def locate_archived(services: Services, new: NewReplay) -> AwaitedRestore:
    """Where this data centre's log had the records of a window, whether it still has them or not.

    Raises:
        LogUnavailable: the log does not answer.
    """
    settings = services.settings
    arrived_by_ms = all_arrived_by_ms(
        new.window,
        now_ms(),
        lateness_ms=settings.lateness_ms,
        retention_ms=settings.retention_ms,
    )
    partition, below = services.history.end_before(new.webhook_id, arrived_by_ms)
    late_end = services.store.late_end_offset(partition, new.window, origin=settings.origin)
    return AwaitedRestore(partition, max(below, late_end or 0))


def check_still_restored(services: Services, replay_id: str) -> None:
    """Check that the restored records of a finished replay still exist.

    Raises:
        RestoreExpired: they were deleted.
        LogUnavailable: the log does not answer.
    """
    offsets = services.store.replay(replay_id).offsets
    if offsets is None:
        return  # without failures either; the store reports that
    low = services.history.bounds(DELIVERY_ARCHIVE, offsets.partition).low
    if low > offsets.start:
        raise RestoreExpired(
            f"the restored records of replay {replay_id!r} were deleted a day after its end; "
            "request the window again"
        )


def record_restore(
    services: Services, caller: ApiKey, replay_id: str, offsets: OffsetRange
) -> Replay:
    """Record that all records of a replay are in `delivery_archive`; a worker may claim it.

    Raises:
        NotRestoredHere: the replay belongs to another data centre.
        InvalidRequest: the offsets are not of the replay's partition, or not in the topic.
        ReplayNotFound, NothingToRestore, LogUnavailable.
    """
    replay = _replay_of_here(services, replay_id)
    # The offsets of a repeated request may be deleted by now, which is no error.
    if replay.offsets != offsets:
        _check_offsets(services, replay, offsets)
    restored = services.store.record_restore(replay_id, offsets, actor=caller.actor)
    services.replay_requests.publish(replay_id)
    return restored


def record_missing(services: Services, caller: ApiKey, replay_id: str, missing: str) -> Replay:
    """Record which records of a replay could not be restored; the replay keeps waiting.

    Raises:
        NotRestoredHere: the replay belongs to another data centre.
        ReplayNotFound, NothingToRestore.
    """
    _replay_of_here(services, replay_id)
    return services.store.record_missing_records(replay_id, missing, actor=caller.actor)


def _replay_of_here(services: Services, replay_id: str) -> Replay:
    replay = services.store.replay(replay_id)
    if replay.origin != services.settings.origin:
        raise NotRestoredHere(
            f"replay {replay_id!r} is restored in data centre {replay.origin!r}; use its API"
        )
    return replay


def _check_offsets(services: Services, replay: Replay, offsets: OffsetRange) -> None:
    if replay.awaits is None:
        return  # the store reports it
    if offsets.partition != replay.awaits.partition:
        allowed = f"{replay.awaits.partition}, the partition of its events"
        raise InvalidRequest(fields=[FieldError("partition", offsets.partition, allowed)])
    held = services.history.bounds(DELIVERY_ARCHIVE, offsets.partition)
    if not held.low <= offsets.start <= offsets.end <= held.high:
        allowed = f"{held.low} to endOffset, which is at most {held.high}: the topic's offsets"
        raise InvalidRequest(fields=[FieldError("startOffset", offsets.start, allowed)])
