"""The table of a replay's progress over time: at most a few hundred rows per replay.

One statement copies the row of `replays`, so a worker that lost its lease adds nothing.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, true

from app.domain.model import Counts
from app.domain.samples import Sample, is_due
from app.domain.states import TERMINAL
from app.store.replays import get_replay
from app.store.sql import now_ms, upsert
from app.store.tables import replay_samples, replays

_COPIED_COLUMNS: Final = ("checkpoint_offset", "delivered", "duplicates", "failed")


def add_samples(
    connection: Connection, replay_ids: Sequence[str], epoch: int | None = None
) -> None:
    """Add a sample of each replay that has ended or is due; `epoch` is the lease's, if any.

    Locks the new rows.
    """
    is_meant = and_(
        replays.c.id.in_(replay_ids),
        replays.c.checkpoint_offset.is_not(None),
        true() if epoch is None else replays.c.lease_epoch == epoch,
    )
    due = [row.id for row in connection.execute(_last_samples(is_meant)) if _is_due(row)]
    if due:
        _copy(connection, and_(is_meant, replays.c.id.in_(due)))


def add_first_sample(connection: Connection, replay_id: str) -> None:
    """Add a sample of a replay that has none, and whose row the caller has locked."""
    _copy(connection, replays.c.id == replay_id)


def _copy(connection: Connection, is_meant: ColumnElement[bool]) -> None:
    source = select(replays.c.id, now_ms(), *(replays.c[name] for name in _COPIED_COLUMNS))
    statement = upsert(
        connection, replay_samples, lambda new: {name: new[name] for name in _COPIED_COLUMNS}
    )
    columns = ["replay_id", "at_ms", *_COPIED_COLUMNS]
    connection.execute(statement.from_select(columns, source.where(is_meant)))


def _last_samples(is_meant: ColumnElement[bool]) -> Any:
    last_ms = (
        select(func.max(replay_samples.c.at_ms))
        .where(replay_samples.c.replay_id == replays.c.id)
        .scalar_subquery()
    )
    return select(
        replays.c.id,
        replays.c.state,
        replays.c.started_ms,
        last_ms.label("last_ms"),
        now_ms().label("present_ms"),
    ).where(is_meant)


def _is_due(row: Row[Any]) -> bool:
    # The last sample shows the exact end.
    return row.state in TERMINAL or is_due(row.last_ms, row.started_ms, row.present_ms)


def list_samples(
    connection: Connection, replay_id: str, *, of_account: str | None = None
) -> tuple[Sample, ...]:
    """The samples of the replay, oldest first; see `app.domain.samples`.

    Raises:
        ReplayNotFound: see `replays.get_replay`.
    """
    get_replay(connection, replay_id, of_account=of_account)
    query = select(replay_samples).where(replay_samples.c.replay_id == replay_id)
    return tuple(map(_to_sample, connection.execute(query.order_by(replay_samples.c.at_ms))))


def find_time_above(connection: Connection, replay_id: str, offset: int) -> int | None:
    """When the checkpoint of a replay was above an offset, in its first sample that shows it."""
    query = select(func.min(replay_samples.c.at_ms)).where(
        replay_samples.c.replay_id == replay_id, replay_samples.c.checkpoint_offset > offset
    )
    found: int | None = connection.execute(query).scalar_one()
    return found


def _to_sample(row: Row[Any]) -> Sample:
    counts = Counts(row.delivered, row.duplicates, row.failed)
    return Sample(row.at_ms, row.checkpoint_offset, counts)
