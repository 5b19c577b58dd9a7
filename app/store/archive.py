"""Replays of the archive as the restore job uses them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, null, or_, select

from app.domain.model import AwaitedRestore, AwaitingRestore, OffsetRange, Replay
from app.domain.moves import MoveEvent
from app.domain.options import Source
from app.domain.states import ReplayEvent, ReplayState
from app.domain.windows import DAY_MS
from app.store.claim_queue import claimable_from
from app.store.errors import NothingToRestore
from app.store.moves import Moved, record_moves, trim_moves
from app.store.replay_columns import awaits_from_column, awaits_to_column
from app.store.replays import get_replay, lock_replay, to_replay
from app.store.sql import now_ms
from app.store.tables import replays
from app.store.transitions import transition

KEPT_MS: Final = DAY_MS
"""How long the restored records of an ended replay's failures are kept for a retry."""

MISSING_CHARS_MAX: Final = 2_000
"""Longer texts are cut: a column of MySQL holds 65,535 bytes."""

_IS_OF_ARCHIVE: Final = replays.c.source == str(Source.ARCHIVE)


def awaits_restore() -> ColumnElement[bool]:
    """Whether a replay awaits its records."""
    return and_(_IS_OF_ARCHIVE, replays.c.finished_ms.is_(None), replays.c.awaits.is_not(None))


def awaiting_restore(connection: Connection, origin: str, limit: int) -> AwaitingRestore:
    """The first `limit` replays of a data centre that await a restore, and what is still needed.

    Locks nothing.
    """
    is_waiting = and_(awaits_restore(), replays.c.origin == origin)
    query = select(replays).where(is_waiting).order_by(replays.c.created_ms, replays.c.id)
    rows = connection.execute(query.limit(limit)).all()
    return AwaitingRestore(
        tuple(map(to_replay, rows)),
        _partitions_beyond(connection, is_waiting, limit),
        _needed_from(connection, origin),
    )


def _partitions_beyond(
    connection: Connection, is_waiting: ColumnElement[bool], limit: int
) -> frozenset[int]:
    query = select(replays.c.awaits).where(is_waiting)
    query = query.order_by(replays.c.created_ms, replays.c.id).offset(limit)
    awaited = map(awaits_from_column, connection.execute(query).scalars())
    return frozenset(each.partition for each in awaited if each is not None)


def _needed_from(connection: Connection, origin: str) -> dict[int, int]:
    """The lowest offset of `delivery_archive` that a replay still needs, by partition.

    Active replays need their records, and so do recently ended ones with failures.
    """
    can_be_retried = and_(
        replays.c.finished_ms > now_ms() - KEPT_MS, replays.c.failed > 0, _IS_OF_ARCHIVE
    )
    is_active = and_(_IS_OF_ARCHIVE, replays.c.finished_ms.is_(None))
    query = (
        select(replays.c.log_partition, func.min(replays.c.start_offset))
        .where(
            or_(is_active, can_be_retried),
            replays.c.origin == origin,
            replays.c.log_partition.is_not(None),
        )
        .group_by(replays.c.log_partition)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def record_restore(
    connection: Connection, replay_id: str, offsets: OffsetRange, *, actor: str | None = None
) -> Replay:
    """Store the offsets of the restored records in `delivery_archive`, and return the replay.

    A worker can claim it afterwards. A second call with the same offsets changes nothing. Locks
    the replay's row until the commit.

    Raises:
        ReplayNotFound: no replay has this id.
        NothingToRestore: it reads the log, has its records elsewhere, or has ended.
    """
    replay = lock_replay(connection, replay_id)
    if replay.source is Source.ARCHIVE and replay.awaits is None and replay.offsets == offsets:
        return replay
    _check_awaits(replay)
    is_paused = replays.c.state == str(ReplayState.PAUSED)
    values: Mapping[str, Any] = {
        "claimable_ms": case((is_paused, null()), else_=claimable_from(now_ms())),
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
        "awaits": None,
        "restored_ms": now_ms(),
    }
    return _apply(connection, replay, values, actor, None)


def record_missing_records(
    connection: Connection, replay_id: str, text: str, *, actor: str | None = None
) -> Replay:
    """Store which records the restore did not find; the replay still awaits them.

    Locks the replay's row until the commit.

    Raises:
        ReplayNotFound: no replay has this id.
        NothingToRestore: see `record_restore`.
    """
    replay = lock_replay(connection, replay_id)
    awaits = replace(_check_awaits(replay), missing=text[:MISSING_CHARS_MAX])
    values = {"awaits": awaits_to_column(awaits)}
    return _apply(connection, replay, values, actor, f"not found: {awaits.missing}")


def _check_awaits(replay: Replay) -> AwaitedRestore:
    if replay.awaits is None:
        raise NothingToRestore(replay.id, replay.state)
    return replay.awaits


def _apply(
    connection: Connection,
    replay: Replay,
    values: Mapping[str, Any],
    actor: str | None,
    reason: str | None,
) -> Replay:
    statement = transition(ReplayEvent.RESTORE, values).where(replays.c.id == replay.id)
    connection.execute(statement)
    moved = Moved(replay.id, replay.state, replay.lease_epoch)
    record_moves(connection, MoveEvent.RESTORE, [moved], actor, reason)
    # The restore job may report the same each night.
    trim_moves(connection, [replay.id])
    return get_replay(connection, replay.id)
