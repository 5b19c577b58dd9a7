"""The table of rules.

`of_account` and `WebhookNotFound` are those of `webhooks`. Functions that change a rule lock the
routing revision (see `revisions`) and the rule's row until the commit.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from app.domain.rules import (
    DEFAULT_RULE,
    RULES_PER_WEBHOOK_MAX,
    Rule,
    conditions_of,
    document_of,
)
from app.store.errors import RuleNotFound, TooManyRules
from app.store.pages import PAGE_LIMIT, Page, PageCursor, decode_cursor, page_of
from app.store.revisions import count_up, purge_deleted
from app.store.rule_kinds import check_account_limits, check_webhook_kinds, digest_of_kind
from app.store.sql import exactly, now_ms
from app.store.tables import rules
from app.store.webhooks import get_webhook


def put_rule(
    connection: Connection, rule: Rule, *, of_account: str | None = None
) -> tuple[Rule, bool]:
    """Create or replace the rule; return it, and whether it is new.

    The limits of an account apply to developers only, that is with `of_account`.

    Raises:
        TooManyRules: the webhook or the account has the maximum of rules, kinds, globs or paths.
    """
    revision = count_up(connection)
    get_webhook(connection, rule.webhook_id, of_account=of_account)
    return rule, store_rule(connection, rule, revision, of_account)


def store_rule(
    connection: Connection, rule: Rule, revision: int, limited_account: str | None
) -> bool:
    """Store the rule of an existing webhook; return whether it is new.

    With `limited_account`, the webhook's account, the limits of that account apply.

    Raises:
        TooManyRules: see `put_rule`.
    """
    row = _find_row(connection, rule.webhook_id, rule.name)
    is_new = row is None or row.value is None
    if is_new:
        _check_count(connection, rule.webhook_id)
    kind = digest_of_kind(rule)
    check_webhook_kinds(connection, rule, kind)
    if limited_account is not None:
        check_account_limits(connection, rule, kind, limited_account)
    values = {"value": _to_value(rule), "kind": kind, "revision": revision, "deleted_ms": None}
    if row is None:
        key = {"webhook_id": rule.webhook_id, "name": rule.name}
        connection.execute(insert(rules).values(key | values))
    else:
        _update(connection, rule.webhook_id, rule.name, values)
    return is_new


def _find_row(connection: Connection, webhook_id: str, name: str) -> Row[Any] | None:
    query = select(rules).where(
        exactly(rules.c.webhook_id, webhook_id), exactly(rules.c.name, name)
    )
    return connection.execute(query).first()


def _check_count(connection: Connection, webhook_id: str) -> None:
    query = select(func.count()).where(rules.c.webhook_id == webhook_id, rules.c.value.is_not(None))
    if connection.execute(query).scalar_one() >= RULES_PER_WEBHOOK_MAX:
        raise TooManyRules(f"webhook {webhook_id!r}", f"{RULES_PER_WEBHOOK_MAX} rules")


def _update(connection: Connection, webhook_id: str, name: str, values: dict[str, Any]) -> None:
    statement = update(rules).where(rules.c.webhook_id == webhook_id, rules.c.name == name)
    connection.execute(statement.values(values))


def get_rule(
    connection: Connection, webhook_id: str, name: str, *, of_account: str | None = None
) -> Rule:
    """The rule with this name.

    Raises:
        RuleNotFound: the webhook has no rule with this name.
    """
    get_webhook(connection, webhook_id, of_account=of_account)
    row = _find_row(connection, webhook_id, name)
    if row is None or row.value is None:
        raise RuleNotFound(webhook_id, name)
    return to_rule(row)


def delete_rule(
    connection: Connection, webhook_id: str, name: str, *, of_account: str | None = None
) -> None:
    """Delete the rule; its row remains for a day, so that readers learn of the deletion.

    Raises:
        RuleNotFound: the webhook has no rule with this name.
    """
    revision = count_up(connection)
    get_rule(connection, webhook_id, name, of_account=of_account)
    _update(connection, webhook_id, name, _deleted(revision))
    purge_deleted(connection, rules)


def _deleted(revision: int) -> dict[str, Any]:
    return {"value": None, "kind": None, "revision": revision, "deleted_ms": now_ms()}


def delete_rules_of(connection: Connection, webhook_id: str, revision: int) -> None:
    """Delete all rules of a webhook, as `delete_rule` does; locks their rows."""
    statement = update(rules).where(rules.c.webhook_id == webhook_id, rules.c.value.is_not(None))
    connection.execute(statement.values(_deleted(revision)))


def list_rules(
    connection: Connection,
    webhook_id: str,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
    *,
    of_account: str | None = None,
) -> Page[Rule]:
    """A page of the webhook's rules, by name.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    get_webhook(connection, webhook_id, of_account=of_account)
    query = select(rules).where(rules.c.webhook_id == webhook_id, rules.c.value.is_not(None))
    if cursor is not None:
        query = query.where(rules.c.name > decode_cursor(cursor).id)
    rows = connection.execute(query.order_by(rules.c.name).limit(limit + 1)).all()
    return page_of(rows, limit, to_rule, lambda row: PageCursor(0, row.name))


def set_default_types(
    connection: Connection, webhook_id: str, event_types: Sequence[str], limited_account: str | None
) -> None:
    """Give the rule `default` these event types, and keep its conditions; without any, delete it.

    Raises:
        TooManyRules: see `store_rule`.
    """
    revision = count_up(connection)
    row = _find_row(connection, webhook_id, DEFAULT_RULE)
    found = None if row is None or row.value is None else to_rule(row)
    if event_types:
        where = () if found is None else found.where
        rule = Rule(webhook_id, DEFAULT_RULE, tuple(event_types), where)
        store_rule(connection, rule, revision, limited_account)
    elif found is not None:
        _update(connection, webhook_id, DEFAULT_RULE, _deleted(revision))
        purge_deleted(connection, rules)


def default_types(
    connection: Connection, webhook_ids: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The event types of the rules `default`, by the ids of the webhooks that have one."""
    query = select(rules).where(
        rules.c.webhook_id.in_(webhook_ids),
        rules.c.name == DEFAULT_RULE,
        rules.c.value.is_not(None),
    )
    found = map(to_rule, connection.execute(query))
    return {rule.webhook_id: rule.event_types for rule in found}


def _to_value(rule: Rule) -> str:
    # As UTF-8 the largest rule that the API accepts fits into the 65,535 bytes of MySQL's TEXT;
    # escaped, a character may take twelve bytes.
    value = {"eventTypes": rule.event_types, "where": document_of(rule.where)}
    return json.dumps(value, ensure_ascii=False)


def to_rule(row: Row[Any]) -> Rule:
    """The rule of a row that is not deleted."""
    value = json.loads(row.value)
    return Rule(row.webhook_id, row.name, tuple(value["eventTypes"]), conditions_of(value["where"]))
