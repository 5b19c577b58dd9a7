"""The kinds of rules that webhooks and accounts have, and their limits; see `Rule.kind`.

Rules of a kind are many, so each query seeks from kind to kind in the index instead of reading all
rules. Nothing is locked here; `rules` holds the lock of the routing revision.
"""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, not_, select

from app.domain.patterns import count_alternatives
from app.domain.rules import (
    ALTERNATIVES_PER_ACCOUNT_MAX,
    GLOBS_PER_ACCOUNT_MAX,
    KINDS_PER_ACCOUNT_MAX,
    KINDS_PER_WEBHOOK_MAX,
    PATH_SETS_PER_ACCOUNT_MAX,
    PATTERNS_PER_ACCOUNT_MAX,
    Conditions,
    Rule,
    conditions_of,
    split_patterns,
)
from app.store.errors import TooManyRules
from app.store.sql import exactly
from app.store.tables import rules, webhooks


def digest_of_kind(rule: Rule) -> str:
    """The hash that is equal for rules of one kind only."""
    return sha256(json.dumps(rule.kind).encode()).hexdigest()


def check_webhook_kinds(connection: Connection, rule: Rule, kind: str) -> None:
    """Return if the webhook may have this rule, whose kind has the hash `kind`.

    Raises:
        TooManyRules: its other rules are of the maximum of kinds, and this is a further one.
    """
    others = and_(rules.c.webhook_id == rule.webhook_id, _is_other(rule))
    is_known = select(rules.c.name).where(others, rules.c.kind == kind).limit(1)
    if connection.execute(is_known).first() is not None:
        return
    count = select(func.count(rules.c.kind.distinct())).where(others)
    if connection.execute(count).scalar_one() >= KINDS_PER_WEBHOOK_MAX:
        raise TooManyRules(
            f"webhook {rule.webhook_id!r}", f"rules of {KINDS_PER_WEBHOOK_MAX} kinds"
        )


def check_account_limits(connection: Connection, rule: Rule, kind: str, account_id: str) -> None:
    """Return if the account of the webhook may have this rule, whose kind has the hash `kind`.

    Raises:
        TooManyRules: the rules of its webhooks would have too many kinds, globs, sets of paths or
            patterns.
    """
    is_of_account = and_(webhooks.c.account_id == account_id, webhooks.c.deleted_ms.is_(None))
    is_known = (
        select(rules.c.name)
        .join(webhooks, webhooks.c.id == rules.c.webhook_id)
        .where(is_of_account, _is_other(rule), rules.c.kind == kind)
        .limit(1)
    )
    if connection.execute(is_known).first() is not None:
        return
    found = _rule_of_each_kind(connection, is_of_account, rule)
    account = f"account {account_id!r}"
    if len(found) >= KINDS_PER_ACCOUNT_MAX:
        raise TooManyRules(account, f"rules of {KINDS_PER_ACCOUNT_MAX} kinds")
    values = [json.loads(value) for value in found.values()]
    globs = {glob for value in values for glob in value["eventTypes"]}
    if len(globs | set(rule.event_types)) > max(GLOBS_PER_ACCOUNT_MAX, len(globs)):
        raise TooManyRules(
            account, f"rules with {len(globs)} different globs, of at most {GLOBS_PER_ACCOUNT_MAX}"
        )
    others = [conditions_of(value["where"]) for value in values]
    path_sets, path_set = _path_sets(others), _path_sets([rule.where])
    if not path_set <= path_sets and len(path_sets) >= PATH_SETS_PER_ACCOUNT_MAX:
        raise TooManyRules(account, f"rules with {PATH_SETS_PER_ACCOUNT_MAX} sets of paths")
    _check_patterns(account, others, rule)


def _path_sets(conditions: Iterable[Conditions]) -> set[frozenset[str]]:
    """The different sets of paths with values."""
    found = (values for values, _ in map(split_patterns, conditions))
    return {frozenset(dict(values)) for values in found if values}


def _check_patterns(account: str, others: Iterable[Conditions], rule: Rule) -> None:
    found = {patterns for _, patterns in map(split_patterns, others) if patterns}
    _, new = split_patterns(rule.where)
    if not new or new in found:
        return
    if len(found) >= PATTERNS_PER_ACCOUNT_MAX:
        raise TooManyRules(account, f"rules with {PATTERNS_PER_ACCOUNT_MAX} different patterns")
    count = count_alternatives(found)
    if count + count_alternatives([new]) > ALTERNATIVES_PER_ACCOUNT_MAX:
        limit = f"of at most {ALTERNATIVES_PER_ACCOUNT_MAX}"
        raise TooManyRules(account, f"rules with {count} alternatives in patterns, {limit}")


def _is_other(rule: Rule) -> ColumnElement[bool]:
    is_same_webhook = exactly(rules.c.webhook_id, rule.webhook_id)
    return not_(and_(is_same_webhook, exactly(rules.c.name, rule.name)))


def _rule_of_each_kind(
    connection: Connection, is_of_account: ColumnElement[bool], new: Rule
) -> dict[str, str]:
    """The value of one rule of each kind in the account, by the hash of the kind, without `new`."""
    first = _next_kind(webhooks.c.id, None, new)
    found = (
        select(webhooks.c.id.label("webhook_id"), first.label("kind"))
        .where(is_of_account)
        .cte("found", recursive=True)
    )
    found = found.union_all(
        select(found.c.webhook_id, _next_kind(found.c.webhook_id, found.c.kind, new)).where(
            found.c.kind.is_not(None)
        )
    )
    value = (
        select(rules.c.value)
        .where(
            rules.c.webhook_id == found.c.webhook_id,
            rules.c.kind == found.c.kind,
            _is_other(new),
        )
        .limit(1)
        .scalar_subquery()
        .label("value")
    )
    query = select(found.c.kind, value).where(found.c.kind.is_not(None))
    return {row.kind: row.value for row in connection.execute(query)}


def _next_kind(webhook_id: ColumnElement[str], after: Any, new: Rule) -> Any:
    """The first kind of the webhook's rules, or the first after `after`."""
    query = select(rules.c.kind).where(rules.c.webhook_id == webhook_id, _is_other(new))
    query = query.where(rules.c.kind.is_not(None) if after is None else rules.c.kind > after)
    return query.order_by(rules.c.kind).limit(1).scalar_subquery()
