"""The revision of the routing table, and what has changed in it since an earlier one.

The routing table is all webhooks with all rules. Each change of it counts the revision up, in the
transaction of the change and before anything else, and marks the rows it changes. The lock on the
counter, held until the commit, keeps changes in the order of their revisions: who has read a
revision finds every change up to it.
"""

from typing import Final

from sqlalchemy import Connection, and_, select, update

from app.domain.rules import RoutingChanges
from app.store import rules as rules_table
from app.store.rules import to_rule
from app.store.tables import revisions, rules, webhooks
from app.store.webhooks import to_webhook

ROUTING: Final = "routing"
FORGOTTEN: Final = "forgotten"


def count_up(connection: Connection) -> int:
    """The revision of the change that this transaction makes; locks the counter until its end.

    Taken before every other lock, so that no two changes of the table wait for each other.
    """
    is_routing = revisions.c.name == ROUTING
    connection.execute(update(revisions).where(is_routing).values(value=revisions.c.value + 1))
    return _value(connection, ROUTING)


def _value(connection: Connection, name: str) -> int:
    query = select(revisions.c.value).where(revisions.c.name == name)
    revision: int = connection.execute(query).scalar_one()
    return revision


def forget_deleted(connection: Connection) -> None:
    """Delete what is left of rules that were deleted long ago; see `rules.forget_deleted`."""
    last = rules_table.forget_deleted(connection)
    if last is not None:
        is_forgotten = and_(revisions.c.name == FORGOTTEN, revisions.c.value < last)
        connection.execute(update(revisions).where(is_forgotten).values(value=last))


def changes(connection: Connection, after: int) -> RoutingChanges:
    """What has changed since the revision `after`, or all there is after 0. Locks nothing.

    The revision is read first: on MySQL, entries of later ones may come along, and come again.
    Who slept for so long that deleted rules were forgotten is sent back to revision 0.
    """
    revision = _value(connection, ROUTING)
    if revision == after:
        return RoutingChanges(revision)
    if not 0 < after < revision:
        return _all(connection, revision)
    changed_webhooks = connection.execute(select(webhooks).where(webhooks.c.revision > after)).all()
    changed_rules = connection.execute(select(rules).where(rules.c.revision > after)).all()
    # Asked last, so that it knows of all that was missing above.
    if after < _value(connection, FORGOTTEN):
        return _all(connection, 0)
    return RoutingChanges(
        revision,
        webhooks=tuple(to_webhook(row) for row in changed_webhooks if row.deleted_ms is None),
        gone_webhooks=tuple(row.id for row in changed_webhooks if row.deleted_ms is not None),
        rules=tuple(to_rule(row) for row in changed_rules if row.value is not None),
        gone_rules=tuple((row.webhook_id, row.name) for row in changed_rules if row.value is None),
    )


def _all(connection: Connection, revision: int) -> RoutingChanges:
    """Every entry that is there; what the version before stored has revision 0 and is among it."""
    all_webhooks = connection.execute(select(webhooks).where(webhooks.c.deleted_ms.is_(None)))
    all_rules = connection.execute(select(rules).where(rules.c.value.is_not(None)))
    return RoutingChanges(
        revision,
        webhooks=tuple(map(to_webhook, all_webhooks)),
        rules=tuple(map(to_rule, all_rules)),
    )
