"""Replays of the archive as the restore job sees them: what waits, and what is still needed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, null, or_, select

from app.domain.model import AwaitedRestore, AwaitingRestore, OffsetRange, Replay
from app.domain.moves import MoveEvent
from app.domain.options import Source
from app.domain.states import ReplayEvent, ReplayState
from app.domain.windows import DAY_MS
from app.store import moves, stored_restore
from app.store import replays as replays_table
from app.store.claiming import claimable_from
from app.store.clock import now_ms
from app.store.errors import NothingToRestore
from app.store.moves import Moved
from app.store.tables import replays
from app.store.transitions import moved_by

KEPT_MS: Final = DAY_MS
"""So long after the end of a replay its failures can be tried again, from what was restored."""

MISSING_CHARS_MAX: Final = 2_000
"""A longer text is cut: a column of MySQL holds 65,535 bytes."""

_IS_OF_ARCHIVE: Final = replays.c.source == str(Source.ARCHIVE)


def awaits_restore() -> ColumnElement[bool]:
    """Whether a replay waits for its records."""
    return and_(_IS_OF_ARCHIVE, replays.c.finished_ms.is_(None), replays.c.awaits.is_not(None))


def awaiting(connection: Connection, origin: str, limit: int) -> AwaitingRestore:
    """What the restore job of a data centre has to do; `limit` replays at most."""
    is_waiting = and_(awaits_restore(), replays.c.origin == origin)
    query = select(replays).where(is_waiting).order_by(replays.c.created_ms, replays.c.id)
    rows = connection.execute(query.limit(limit)).all()
    return AwaitingRestore(
        tuple(map(replays_table.to_replay, rows)),
        _partitions_beyond(connection, is_waiting, limit),
        _needed_from(connection, origin),
    )


def _partitions_beyond(
    connection: Connection, is_waiting: ColumnElement[bool], limit: int
) -> frozenset[int]:
    query = select(replays.c.awaits).where(is_waiting)
    query = query.order_by(replays.c.created_ms, replays.c.id).offset(limit)
    awaited = map(stored_restore.of_column, connection.execute(query).scalars())
    return frozenset(each.partition for each in awaited if each is not None)


def _needed_from(connection: Connection, origin: str) -> dict[int, int]:
    """The lowest offset that a replay still needs in `delivery_archive`, by partition.

    Those that are not over need theirs, and those with failures that ended of late.
    """
    may_be_retried = and_(
        replays.c.finished_ms > now_ms() - KEPT_MS, replays.c.failed > 0, _IS_OF_ARCHIVE
    )
    is_active = and_(_IS_OF_ARCHIVE, replays.c.finished_ms.is_(None))
    query = (
        select(replays.c.log_partition, func.min(replays.c.start_offset))
        .where(
            or_(is_active, may_be_retried),
            replays.c.origin == origin,
            replays.c.log_partition.is_not(None),
        )
        .group_by(replays.c.log_partition)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def restored(
    connection: Connection, replay_id: str, offsets: OffsetRange, actor: str | None
) -> Replay:
    """The replay, whose records lie at `offsets` of `delivery_archive`: a worker may claim it.

    Locks its row. To say so again changes nothing.

    Raises:
        ReplayNotFound: there is none.
        NothingToRestore: it does not wait for that.
    """
    replay = replays_table.locked(connection, replay_id)
    if replay.source is Source.ARCHIVE and replay.awaits is None and replay.offsets == offsets:
        return replay
    _awaited(replay)
    is_paused = replays.c.state == str(ReplayState.PAUSED)
    values: Mapping[str, Any] = {
        "claimable_ms": case((is_paused, null()), else_=claimable_from(now_ms())),
        "log_partition": offsets.partition,
        "start_offset": offsets.start,
        "end_offset": offsets.end,
        "awaits": None,
        "restored_ms": now_ms(),
    }
    return _moved(connection, replay, values, actor, None)


def missing(connection: Connection, replay_id: str, text: str, actor: str | None) -> Replay:
    """The replay, with what could not be brought back in words. Locks its row.

    Raises:
        ReplayNotFound: there is none.
        NothingToRestore: it does not wait for that.
    """
    replay = replays_table.locked(connection, replay_id)
    told = replace(_awaited(replay), missing=text[:MISSING_CHARS_MAX])
    values = {"awaits": stored_restore.to_column(told)}
    return _moved(connection, replay, values, actor, f"not found: {told.missing}")


def _awaited(replay: Replay) -> AwaitedRestore:
    if replay.awaits is None:
        raise NothingToRestore(replay.id, replay.state)
    return replay.awaits


def _moved(
    connection: Connection,
    replay: Replay,
    values: Mapping[str, Any],
    actor: str | None,
    reason: str | None,
) -> Replay:
    statement = moved_by(ReplayEvent.RESTORE, values).where(replays.c.id == replay.id)
    connection.execute(statement)
    moved = Moved(replay.id, replay.state, replay.lease_epoch)
    moves.note(connection, MoveEvent.RESTORE, [moved], actor, reason)
    # The job may tell the same each night.
    moves.trim(connection, [replay.id])
    return replays_table.get(connection, replay.id)
