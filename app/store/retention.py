"""Deletion of what has expired: rows of old replays, and previous secrets.

Each function is one short transaction, and several processes may run it at the same time: it skips
rows that others have locked, and a second run finds nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    or_,
    select,
    update,
)

from app.domain.options import Source
from app.store.notice_tables import notice_endpoints
from app.store.sql import IDS_PER_QUERY, now_ms
from app.store.tables import metadata, replays, webhooks

REPLAYS_PER_CALL: Final = 100
ROWS_PER_CALL: Final = 1_000
"""Rows of one table that a call deletes: some tens of milliseconds."""


def _refers_to_replays(table: Table) -> bool:
    return any(key.column is replays.c.id for key in table.foreign_keys)


CHILD_TABLES: Final = tuple(filter(_refers_to_replays, metadata.sorted_tables))
"""The tables whose rows belong to a replay, by their column `replay_id`."""


def delete_old_replays(connection: Connection, kept_ms: int) -> Mapping[str, int]:
    """Delete rows of replays that ended more than `kept_ms` ago; returns the numbers by table.

    Empty if there are none. At most `ROWS_PER_CALL` rows of each table; the row of a replay is
    deleted last. Keeps a replay whose notification is due, and one whose failures an active replay
    retries. Locks the rows of up to `REPLAYS_PER_CALL` replays until the commit.
    """
    ids = _lock_old_replays(connection, kept_ms)
    deleted: Counter[str] = Counter()
    if not ids:
        return deleted
    is_complete = True
    for table in CHILD_TABLES:
        count, is_empty = _delete_rows_of(connection, table, ids)
        deleted[table.name] += count
        is_complete = is_complete and is_empty
    if is_complete:
        connection.execute(delete(replays).where(replays.c.id.in_(ids)))
        deleted[replays.name] += len(ids)
    return +deleted


def _lock_old_replays(connection: Connection, kept_ms: int) -> Sequence[str]:
    """The ids of the replays to delete, whose rows are locked."""
    retried = select(replays.c.retry_of).where(
        replays.c.active_webhook_id.is_not(None), replays.c.retry_of.is_not(None)
    )
    is_old = and_(
        # The index begins with the source.
        replays.c.source.in_([str(source) for source in Source]),
        replays.c.finished_ms < now_ms() - kept_ms,
        replays.c.notice_due_ms.is_(None),
    )
    # Without a lock: MariaDB would also lock the rows of the subquery.
    found = select(replays.c.id).where(is_old, replays.c.id.not_in(retried)).limit(REPLAYS_PER_CALL)
    # Sorted, so that two processes cannot deadlock.
    ids = sorted(connection.execute(found).scalars())
    # A FAILED replay may have been resumed since.
    has_ended = replays.c.finished_ms.is_not(None)
    rows = select(replays.c.id).where(replays.c.id.in_(ids), has_ended).order_by(replays.c.id)
    locked = connection.execute(rows.with_for_update(skip_locked=True)).scalars().all()
    # Creating a retry locks its original, so after the lock the answer is final.
    in_use = set(connection.execute(retried.where(replays.c.retry_of.in_(locked))).scalars())
    return [each for each in locked if each not in in_use]


def _delete_rows_of(connection: Connection, table: Table, ids: Sequence[str]) -> tuple[int, bool]:
    """Delete up to `ROWS_PER_CALL` rows of these replays.

    Returns their number, and whether none is left.
    """
    is_meant: ColumnElement[bool] = table.c.replay_id.in_(ids)
    last = _last_of_chunk(connection, table, is_meant)
    if last is not None:
        is_meant = and_(is_meant, last)
    count = connection.execute(delete(table).where(is_meant)).rowcount
    return count, last is None


def _last_of_chunk(
    connection: Connection, table: Table, is_meant: ColumnElement[bool]
) -> ColumnElement[bool] | None:
    """The condition of the first `ROWS_PER_CALL` rows; None if there are no more rows than that."""
    order = _order_within_replay(table)
    query = select(table.c.replay_id, order).where(is_meant).order_by(table.c.replay_id, order)
    # One row more than a chunk: its predecessors are the chunk.
    beyond = connection.execute(query.offset(ROWS_PER_CALL).limit(1)).first()
    if beyond is None:
        return None
    replay_id, place = beyond
    return or_(table.c.replay_id < replay_id, and_(table.c.replay_id == replay_id, order < place))


def _order_within_replay(table: Table) -> Column[Any]:
    """The other column of the primary key; with `replay_id` it has an index."""
    (order,) = (column for column in table.primary_key if column.name != "replay_id")
    return order


def erase_expired_secrets(connection: Connection) -> int:
    """Erase previous secrets whose grace period has ended; returns how many.

    At most `IDS_PER_QUERY` of webhooks and of notice endpoints. The routing revision stays: no one
    signs with them any more. Locks the changed rows.
    """
    return sum(_erase_expired(connection, table) for table in (webhooks, notice_endpoints))


def _erase_expired(connection: Connection, table: Table) -> int:
    is_expired = and_(
        table.c.previous_secret.is_not(None),
        table.c.previous_secret_until_ms <= now_ms(),
    )
    # Without a lock: the update locks by primary key only.
    found = select(table.c.id).where(is_expired).limit(IDS_PER_QUERY)
    ids = sorted(connection.execute(found).scalars())
    if not ids:
        return 0
    statement = update(table).where(table.c.id.in_(ids), is_expired)
    values = {"previous_secret": None, "previous_secret_until_ms": None}
    return connection.execute(statement.values(values)).rowcount
