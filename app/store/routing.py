"""The revision of the routing table, and what has changed in it since an earlier one.

The routing table is all webhooks with all rules. Each change of it counts the revision up, in the
transaction of the change and before anything else, and marks the rows it changes. The lock on the
counter, held until the commit, keeps changes in the order of their revisions: who has read a
revision finds every change up to it.
"""

from typing import Final

from sqlalchemy import Connection, select, update

from app.replay.rules import RoutingChanges
from app.store.rules import to_rule
from app.store.tables import revisions, rules, webhooks
from app.store.webhooks import to_webhook

_IS_ROUTING: Final = revisions.c.name == "routing"


def count_up(connection: Connection) -> int:
    """The revision of the change that this transaction makes; locks the counter until its end.

    Taken before every other lock, so that no two changes of the table wait for each other.
    """
    connection.execute(update(revisions).where(_IS_ROUTING).values(value=revisions.c.value + 1))
    return _current(connection)


def _current(connection: Connection) -> int:
    query = select(revisions.c.value).where(_IS_ROUTING)
    revision: int = connection.execute(query).scalar_one()
    return revision


def changes(connection: Connection, after: int) -> RoutingChanges:
    """What has changed since the revision `after`, or all there is after 0. Locks nothing.

    The revision is read first: on MySQL, entries of later ones may come along, and come again.
    """
    revision = _current(connection)
    if revision == after:
        return RoutingChanges(revision)
    if not 0 < after < revision:
        return _all(connection, revision)
    changed_webhooks = connection.execute(select(webhooks).where(webhooks.c.revision > after)).all()
    changed_rules = connection.execute(select(rules).where(rules.c.revision > after)).all()
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
