"""The counters of the routing table, which is all webhooks with all rules.

Each change of a webhook or rule first calls `count_up`, and stores the new revision in the rows
that it changes. The lock on the counter, held until the commit, puts the commits in the order of
their revisions: a reader that has seen a revision has seen every change up to it.
"""

from typing import Final

from sqlalchemy import Connection, select, update

from app.store.tables import revisions

ROUTING: Final = "routing"
"""The revision of the last change."""

FORGOTTEN: Final = "forgotten"
"""The last revision of the deleted rules whose rows no longer exist."""


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


def raise_forgotten(connection: Connection, revision: int) -> None:
    """Set the counter `FORGOTTEN` to `revision`, unless it is higher; locks it."""
    statement = update(revisions).where(revisions.c.name == FORGOTTEN, revisions.c.value < revision)
    connection.execute(statement.values(value=revision))
