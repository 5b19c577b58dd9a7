"""The table of how far replays were, over time: a few hundred rows for each at most.

The rows copy what the table of replays says at that moment, in one statement: whoever has lost the
lease meanwhile adds nothing.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select, true

from app.domain.model import Counts
from app.domain.samples import Sample, is_due
from app.domain.states import TERMINAL
from app.store.clock import now_ms
from app.store.tables import replay_samples, replays
from app.store.upsert import insert_or_change

COLUMNS: Final = ("checkpoint_offset", "delivered", "duplicates", "failed")


def take(connection: Connection, replay_ids: Sequence[str], epoch: int | None = None) -> None:
    """Add a sample of each replay that is due for one, or over; `epoch` is that of a lease."""
    is_meant = and_(
        replays.c.id.in_(replay_ids),
        replays.c.checkpoint_offset.is_not(None),
        true() if epoch is None else replays.c.lease_epoch == epoch,
    )
    due = [row.id for row in connection.execute(_found(is_meant)) if _is_due(row)]
    if due:
        source = select(replays.c.id, now_ms(), *(replays.c[name] for name in COLUMNS))
        statement = insert_or_change(
            connection, replay_samples, lambda new: {name: new[name] for name in COLUMNS}
        )
        copied = source.where(is_meant, replays.c.id.in_(due))
        connection.execute(statement.from_select(["replay_id", "at_ms", *COLUMNS], copied))


def _found(is_meant: ColumnElement[bool]) -> Any:
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
    # The end is shown to the record, however long it lasted.
    return row.state in TERMINAL or is_due(row.last_ms, row.started_ms, row.present_ms)


def of_replay(connection: Connection, replay_id: str) -> tuple[Sample, ...]:
    """The samples of the replay, the oldest first."""
    query = select(replay_samples).where(replay_samples.c.replay_id == replay_id)
    return tuple(map(_to_sample, connection.execute(query.order_by(replay_samples.c.at_ms))))


def _to_sample(row: Row[Any]) -> Sample:
    counts = Counts(row.delivered, row.duplicates, row.failed)
    return Sample(row.at_ms, row.checkpoint_offset, counts)
