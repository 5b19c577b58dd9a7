"""The table of rules: every statement on it but the look-up of what changed, see `routing`.

Who writes has counted the revision up before, and so is the only one to change the table.
"""

import json
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, func, insert, not_, select, update
from sqlalchemy import delete as delete_rows

from app.domain.rules import KINDS_PER_WEBHOOK_MAX, RULES_PER_WEBHOOK_MAX, Rule
from app.store import webhooks
from app.store.clock import now_ms
from app.store.errors import RuleNotFound, TooManyRules
from app.store.identity import exactly
from app.store.pages import Page, Position, decode_cursor, page_of
from app.store.tables import rules

FORGET_AFTER_MS: Final = 86_400_000
"""Readers ask every second; one that slept for a day begins anew, see `routing`."""

FORGOTTEN_PER_CALL: Final = 500


def put(connection: Connection, rule: Rule, revision: int, of_account: str | None) -> bool:
    """Whether the rule is new; one of the same name is replaced. Locks its row.

    Raises:
        WebhookNotFound: see `webhooks.get`.
        TooManyRules: the webhook has as many as it may have, or as many kinds of them.
    """
    webhooks.get(connection, rule.webhook_id, of_account)
    row = _row(connection, rule.webhook_id, rule.name)
    is_new = row is None or row.value is None
    if is_new:
        _check_room(connection, rule.webhook_id)
    kind = kind_of(rule)
    _check_kinds(connection, rule, kind)
    values = {"value": _to_value(rule), "kind": kind, "revision": revision, "deleted_ms": None}
    if row is None:
        key = {"webhook_id": rule.webhook_id, "name": rule.name}
        connection.execute(insert(rules).values(key | values))
    else:
        _change(connection, rule.webhook_id, rule.name, values)
    return is_new


def _row(connection: Connection, webhook_id: str, name: str) -> Row[Any] | None:
    query = select(rules).where(
        exactly(rules.c.webhook_id, webhook_id), exactly(rules.c.name, name)
    )
    return connection.execute(query).first()


def _check_room(connection: Connection, webhook_id: str) -> None:
    query = select(func.count()).where(rules.c.webhook_id == webhook_id, rules.c.value.is_not(None))
    if connection.execute(query).scalar_one() >= RULES_PER_WEBHOOK_MAX:
        raise TooManyRules(webhook_id, f"{RULES_PER_WEBHOOK_MAX} rules")


def kind_of(rule: Rule) -> str:
    """What stands for the kind of a rule: equal for rules of one kind alone."""
    return sha256(json.dumps(rule.kind).encode()).hexdigest()


def _check_kinds(connection: Connection, rule: Rule, kind: str) -> None:
    others = and_(rules.c.webhook_id == rule.webhook_id, not_(exactly(rules.c.name, rule.name)))
    is_known = select(rules.c.name).where(others, rules.c.kind == kind).limit(1)
    if connection.execute(is_known).first() is not None:
        return
    count = select(func.count(rules.c.kind.distinct())).where(others)
    if connection.execute(count).scalar_one() >= KINDS_PER_WEBHOOK_MAX:
        raise TooManyRules(rule.webhook_id, f"rules of {KINDS_PER_WEBHOOK_MAX} kinds")


def _change(connection: Connection, webhook_id: str, name: str, values: dict[str, Any]) -> None:
    statement = update(rules).where(rules.c.webhook_id == webhook_id, rules.c.name == name)
    connection.execute(statement.values(values))


def get(connection: Connection, webhook_id: str, name: str, of_account: str | None) -> Rule:
    """The rule of this name.

    Raises:
        WebhookNotFound: see `webhooks.get`.
        RuleNotFound: the webhook has no rule of this name.
    """
    webhooks.get(connection, webhook_id, of_account)
    row = _row(connection, webhook_id, name)
    if row is None or row.value is None:
        raise RuleNotFound(webhook_id, name)
    return to_rule(row)


def delete(
    connection: Connection, webhook_id: str, name: str, revision: int, of_account: str | None
) -> None:
    """Take the rule's value away; its row stays and tells so. Locks the row.

    Raises:
        WebhookNotFound: see `webhooks.get`.
        RuleNotFound: the webhook has no rule of this name.
    """
    get(connection, webhook_id, name, of_account)
    _change(connection, webhook_id, name, _deleted(revision))


def _deleted(revision: int) -> dict[str, Any]:
    return {"value": None, "kind": None, "revision": revision, "deleted_ms": now_ms()}


def delete_all_of(connection: Connection, webhook_id: str, revision: int) -> None:
    """Take the values of all rules of a webhook away; locks their rows."""
    statement = update(rules).where(rules.c.webhook_id == webhook_id, rules.c.value.is_not(None))
    connection.execute(statement.values(_deleted(revision)))


def forget_deleted(connection: Connection) -> int | None:
    """Delete rows whose rules were deleted a day ago; the highest of their revisions.

    None when there are none. Locks what it deletes: at most five hundred rows, and what was
    deleted along with one of them.
    """
    is_old = rules.c.deleted_ms < now_ms() - FORGET_AFTER_MS
    oldest = select(rules.c.revision).where(is_old).order_by(rules.c.deleted_ms)
    found = connection.execute(oldest.limit(FORGOTTEN_PER_CALL)).scalars().all()
    if not found:
        return None
    last: int = max(found)
    connection.execute(delete_rows(rules).where(is_old, rules.c.revision <= last))
    return last


def by_name(
    connection: Connection, webhook_id: str, cursor: str | None, limit: int, of_account: str | None
) -> Page[Rule]:
    """A page of the webhook's rules, by name.

    Raises:
        WebhookNotFound: see `webhooks.get`.
        InvalidCursor: see `pages.decode_cursor`.
    """
    webhooks.get(connection, webhook_id, of_account)
    query = select(rules).where(rules.c.webhook_id == webhook_id, rules.c.value.is_not(None))
    if cursor is not None:
        query = query.where(rules.c.name > decode_cursor(cursor).id)
    rows = connection.execute(query.order_by(rules.c.name).limit(limit + 1)).all()
    return page_of(rows, limit, to_rule, lambda row: Position(0, row.name))


def _to_value(rule: Rule) -> str:
    # As UTF-8 the largest rule that the API takes fits into the 65,535 bytes of MySQL's TEXT;
    # escaped, a character may take twelve.
    value = {"eventTypes": rule.event_types, "where": dict(rule.where)}
    return json.dumps(value, ensure_ascii=False)


def to_rule(row: Row[Any]) -> Rule:
    """The value of a row whose rule is not deleted."""
    value = json.loads(row.value)
    return Rule(row.webhook_id, row.name, tuple(value["eventTypes"]), tuple(value["where"].items()))
