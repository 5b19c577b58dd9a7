"""The routing table, which is all webhooks with all rules, and all grants: changes of them.

`revisions` says how changes are numbered.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, select

from app.domain.endpoint_options import EndpointOptions
from app.domain.model import NewWebhook, Webhook
from app.domain.routing_changes import RoutingChanges
from app.domain.rules import DEFAULT_RULE, Rule
from app.store import webhooks as webhook_table
from app.store.grants import to_grant
from app.store.owner_moves import cancel_active_replay
from app.store.recoveries import delete_recoveries
from app.store.revisions import FORGOTTEN, ROUTING, count_up, get_revision, purge_deleted
from app.store.rules import delete_rules_of, set_default_types, store_rule, to_rule
from app.store.secret_keys import keys_of
from app.store.tables import grants, rules, webhooks
from app.store.webhooks import insert_webhook, mark_deleted, to_webhook


def create_webhook(
    connection: Connection,
    new: NewWebhook,
    *,
    at_most: int | None = None,
    event_types: Sequence[str] = (),
) -> Webhook:
    """Create a PENDING webhook; with `event_types`, also a rule that matches them.

    `at_most` is given for developers, to whose accounts limits apply. Locks the routing revision
    until the commit.

    Raises:
        TooManyWebhooks: its account has `at_most` webhooks.
        TooManyRules: see `rules.put_rule`; with `at_most`.
    """
    revision = count_up(connection)
    webhook = insert_webhook(connection, new, revision, at_most)
    if event_types:
        rule = Rule(webhook.id, DEFAULT_RULE, tuple(event_types))
        store_rule(connection, rule, revision, None if at_most is None else webhook.account_id)
    return webhook


def update_webhook(
    connection: Connection,
    webhook_id: str,
    *,
    url: str | None = None,
    description: str | None = None,
    auto_recovery: bool | None = None,
    change_options: Callable[[EndpointOptions], EndpointOptions] | None = None,
    event_types: Sequence[str] | None = None,
    of_account: str | None = None,
) -> Webhook:
    """Change what is not None, as `webhooks.update_webhook` and `rules.set_default_types` do.

    Raises:
        TooManyRules: see `rules.store_rule`; nothing is changed.
    """
    webhook = webhook_table.update_webhook(
        connection,
        webhook_id,
        url=url,
        description=description,
        auto_recovery=auto_recovery,
        change_options=change_options,
        of_account=of_account,
    )
    if event_types is not None:
        set_default_types(connection, webhook_id, event_types, of_account)
    return webhook


def delete_webhook(
    connection: Connection,
    webhook_id: str,
    *,
    of_account: str | None = None,
    actor: str | None = None,
) -> None:
    """Delete the webhook with its rules, and cancel its active replay; past replays remain.

    One transaction, so that nothing is sent afterwards. Rejecting the deletion while a replay is
    active would keep events flowing until the owner cancels it. `actor` is the id of the API key.
    Locks the routing revision and all changed rows until the commit.

    Raises:
        WebhookNotFound: see `webhooks`.
    """
    revision = count_up(connection)
    mark_deleted(connection, webhook_id, revision, of_account)
    delete_rules_of(connection, webhook_id, revision)
    delete_recoveries(connection, webhook_id)
    purge_deleted(connection, rules)
    cancel_active_replay(connection, webhook_id, actor)


def routing_changes(connection: Connection, after: int) -> RoutingChanges:
    """What changed since the revision `after`; 0 returns the whole table. Locks nothing.

    Cheap if nothing changed, so readers can poll every second. The revision is read first: on
    MySQL, entries of later revisions may be included, and are returned again later. If deleted
    rules or grants since `after` are purged, it returns the whole table with revision 0.
    """
    revision = get_revision(connection, ROUTING)
    if revision == after:
        return RoutingChanges(revision)
    if not 0 < after < revision:
        return _whole_table(connection, revision)
    changed_webhooks = connection.execute(select(webhooks).where(webhooks.c.revision > after)).all()
    changed_rules = connection.execute(select(rules).where(rules.c.revision > after)).all()
    changed_grants = connection.execute(select(grants).where(grants.c.revision > after)).all()
    # Read last, so that it covers all rows that were purged before the queries above.
    if after < get_revision(connection, FORGOTTEN):
        return _whole_table(connection, 0)
    keys = keys_of(connection)
    present = (row for row in changed_webhooks if row.deleted_ms is None)
    return RoutingChanges(
        revision,
        webhooks=tuple(to_webhook(row, keys) for row in present),
        gone_webhooks=tuple(row.id for row in changed_webhooks if row.deleted_ms is not None),
        rules=tuple(to_rule(row) for row in changed_rules if row.value is not None),
        gone_rules=tuple((row.webhook_id, row.name) for row in changed_rules if row.value is None),
        grants=tuple(to_grant(row) for row in changed_grants if row.value is not None),
        gone_grants=tuple(
            (row.account_id, row.name) for row in changed_grants if row.value is None
        ),
    )


def _whole_table(connection: Connection, revision: int) -> RoutingChanges:
    """All entries, including those of revision 0, which the previous version stored."""
    keys = keys_of(connection)
    all_webhooks = connection.execute(select(webhooks).where(webhooks.c.deleted_ms.is_(None)))
    all_rules = connection.execute(select(rules).where(rules.c.value.is_not(None)))
    all_grants = connection.execute(select(grants).where(grants.c.value.is_not(None)))
    return RoutingChanges(
        revision,
        webhooks=tuple(to_webhook(row, keys) for row in all_webhooks),
        rules=tuple(map(to_rule, all_rules)),
        grants=tuple(map(to_grant, all_grants)),
    )
