"""The counters of the routing table, which is all webhooks with all rules, and all grants.

Each change of a webhook, rule or grant first calls `count_up`, and stores the new revision in the
rows that it changes. The lock on the counter, held until the commit, puts the commits in the order
of their revisions: a reader that has seen a revision has seen every change up to it.
"""

from typing import Final

from sqlalchemy import Connection, Table, delete, select, update

from app.store.sql import now_ms
from app.store.tables import revisions

ROUTING: Final = "routing"
"""The revision of the last change."""

FORGOTTEN: Final = "forgotten"
"""The last revision of the deleted rules and grants whose rows no longer exist."""

PURGE_AFTER_MS: Final = 86_400_000
"""Readers poll every second; one that paused for a day reads the whole table, see `routing`."""

PURGED_PER_CALL: Final = 500


def count_up(connection: Connection) -> int:
    """Return the revision of this transaction's change; locks the counter until the commit.

    Must be the transaction's first lock, so that two changes cannot deadlock.
    """
    statement = update(revisions).where(revisions.c.name == ROUTING)
    connection.execute(statement.values(value=revisions.c.value + 1))
    return get_revision(connection, ROUTING)


def get_revision(connection: Connection, name: str) -> int:
    """The value of a counter. Locks nothing."""
    revision: int = connection.execute(
        select(revisions.c.value).where(revisions.c.name == name)
    ).scalar_one()
    return revision


def purge_deleted(connection: Connection, table: Table) -> None:
    """Delete the rows of rules or grants that were deleted a day ago; store their last revision.

    Locks what it deletes: at most `PURGED_PER_CALL` rows, and those deleted together with them.
    """
    is_old = table.c.deleted_ms < now_ms() - PURGE_AFTER_MS
    oldest = select(table.c.revision).where(is_old).order_by(table.c.deleted_ms)
    found = connection.execute(oldest.limit(PURGED_PER_CALL)).scalars().all()
    if not found:
        return
    last: int = max(found)
    connection.execute(delete(table).where(is_old, table.c.revision <= last))
    _raise_forgotten(connection, last)


def _raise_forgotten(connection: Connection, revision: int) -> None:
    """Set the counter `FORGOTTEN` to `revision`, unless it is higher; locks it."""
    statement = update(revisions).where(revisions.c.name == FORGOTTEN, revisions.c.value < revision)
    connection.execute(statement.values(value=revision))
