"""The table of grants.

Functions that change a grant lock the routing revision (see `revisions`) and the grant's row until
the commit. All raise `AccountNotFound` if no account has the id.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, not_, select, update

from app.domain.grants import (
    GRANT_KINDS_PER_ACCOUNT_MAX,
    GRANTS_PER_ACCOUNT_MAX,
    Grant,
    GrantKind,
    conditions_agree,
)
from app.domain.rules import (
    Alternatives,
    Condition,
    Rule,
    conditions_of,
    document_of,
)
from app.store.accounts import check_account
from app.store.errors import GrantNotFound, TooManyGrants
from app.store.pages import PAGE_LIMIT, Page, PageCursor, decode_cursor, page_of
from app.store.revisions import count_up, purge_deleted
from app.store.sql import IDS_PER_QUERY, exactly, now_ms
from app.store.tables import grants


def put_grant(connection: Connection, grant: Grant) -> tuple[Grant, bool]:
    """Create or replace the grant; return it, and whether it is new.

    Raises:
        TooManyGrants: the account has the maximum of grants, or of kinds of grants.
    """
    revision = count_up(connection)
    check_account(connection, grant.account_id)
    row = _find_row(connection, grant.account_id, grant.name)
    is_new = row is None or row.value is None
    if is_new:
        _check_count(connection, grant.account_id)
    kind = _digest_of_kind(grant.kind)
    _check_kinds(connection, grant, kind)
    values = {
        "value": _to_value(grant),
        "kind": kind,
        "content": _digest_of_content(grant.kind, document_of(grant.where)),
        "revision": revision,
        "deleted_ms": None,
    }
    if row is None:
        key = {"account_id": grant.account_id, "name": grant.name}
        connection.execute(insert(grants).values(key | values))
    else:
        _update(connection, grant.account_id, grant.name, values)
    return grant, is_new


def _find_row(connection: Connection, account_id: str, name: str) -> Row[Any] | None:
    query = select(grants).where(
        exactly(grants.c.account_id, account_id), exactly(grants.c.name, name)
    )
    return connection.execute(query).first()


def _check_count(connection: Connection, account_id: str) -> None:
    is_there = and_(grants.c.account_id == account_id, grants.c.value.is_not(None))
    count = connection.execute(select(func.count()).where(is_there)).scalar_one()
    if count >= GRANTS_PER_ACCOUNT_MAX:
        raise TooManyGrants(account_id, f"{GRANTS_PER_ACCOUNT_MAX} grants")


def _check_kinds(connection: Connection, grant: Grant, kind: str) -> None:
    others = and_(grants.c.account_id == grant.account_id, not_(exactly(grants.c.name, grant.name)))
    is_known = select(grants.c.name).where(others, grants.c.kind == kind).limit(1)
    if connection.execute(is_known).first() is not None:
        return
    count = select(func.count(grants.c.kind.distinct())).where(others)
    if connection.execute(count).scalar_one() >= GRANT_KINDS_PER_ACCOUNT_MAX:
        raise TooManyGrants(grant.account_id, f"grants of {GRANT_KINDS_PER_ACCOUNT_MAX} kinds")


def _update(connection: Connection, account_id: str, name: str, values: dict[str, Any]) -> None:
    statement = update(grants).where(grants.c.account_id == account_id, grants.c.name == name)
    connection.execute(statement.values(values))


def get_grant(connection: Connection, account_id: str, name: str) -> Grant:
    """The grant with this name.

    Raises:
        GrantNotFound: the account has no grant with this name.
    """
    check_account(connection, account_id)
    row = _find_row(connection, account_id, name)
    if row is None or row.value is None:
        raise GrantNotFound(account_id, name)
    return to_grant(row)


def delete_grant(connection: Connection, account_id: str, name: str) -> None:
    """Delete the grant; its row remains for a day, so that readers learn of the deletion.

    Raises:
        GrantNotFound: the account has no grant with this name.
    """
    revision = count_up(connection)
    get_grant(connection, account_id, name)
    deleted = {"value": None, "kind": None, "content": None, "deleted_ms": now_ms()}
    _update(connection, account_id, name, deleted | {"revision": revision})
    purge_deleted(connection, grants)


def list_grants(
    connection: Connection, account_id: str, cursor: str | None = None, limit: int = PAGE_LIMIT
) -> Page[Grant]:
    """A page of the account's grants, by name.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    check_account(connection, account_id)
    query = select(grants).where(grants.c.account_id == account_id, grants.c.value.is_not(None))
    if cursor is not None:
        query = query.where(grants.c.name > decode_cursor(cursor).id)
    rows = connection.execute(query.order_by(grants.c.name).limit(limit + 1)).all()
    return page_of(rows, limit, to_grant, lambda row: PageCursor(0, row.name))


def find_covered_rules(
    connection: Connection, account_id: str, rules: Sequence[Rule]
) -> set[tuple[str, str]]:
    """The rules, as (webhook id, name), that can match an event that a grant of the account covers.

    Locks nothing. Looks up values by an index where a rule requires all that a grant requires.
    """
    kinds = _kinds_of(connection, account_id)
    of_kind = cache(lambda kind: list(_grants_of_kind(connection, account_id, kind)))
    covered: set[tuple[str, str]] = set()
    wanted: dict[str, list[Rule]] = {}
    for rule in rules:
        required = dict(rule.where)
        for kind, digest in kinds.items():
            if not kind.can_overlap(rule):
                continue
            if not required.keys() & kind.paths:
                covered.add((rule.webhook_id, rule.name))
            elif not kind.has_patterns and _requires_values(required, kind):
                content = _digest_of_content(kind, {path: required[path] for path in kind.paths})
                wanted.setdefault(content, []).append(rule)
            elif any(conditions_agree(rule, grant.where) for grant in of_kind(digest)):
                covered.add((rule.webhook_id, rule.name))
    for content in _find_contents(connection, account_id, wanted):
        covered.update((rule.webhook_id, rule.name) for rule in wanted[content])
    return covered


def _requires_values(required: dict[str, Condition], kind: GrantKind) -> bool:
    """Whether a rule requires a value at each path of the grants of a kind."""
    return all(
        path in required and not isinstance(required[path], Alternatives) for path in kind.paths
    )


def _kinds_of(connection: Connection, account_id: str) -> dict[GrantKind, str]:
    """The kinds of an account's grants with their digests."""
    is_there = and_(grants.c.account_id == account_id, grants.c.kind.is_not(None))
    first = select(func.min(grants.c.name)).where(is_there).group_by(grants.c.kind)
    names = connection.execute(first).scalars().all()
    query = select(grants).where(grants.c.account_id == account_id, grants.c.name.in_(names))
    return {to_grant(row).kind: row.kind for row in connection.execute(query)}


def _grants_of_kind(connection: Connection, account_id: str, digest: str) -> Iterator[Grant]:
    query = select(grants).where(grants.c.account_id == account_id, grants.c.kind == digest)
    return map(to_grant, connection.execute(query))


def _find_contents(
    connection: Connection, account_id: str, contents: Collection[str]
) -> Iterator[str]:
    """Those of `contents` that a grant of the account has."""
    digests = list(contents)
    for start in range(0, len(digests), IDS_PER_QUERY):
        query = select(grants.c.content).where(
            grants.c.account_id == account_id,
            grants.c.content.in_(digests[start : start + IDS_PER_QUERY]),
        )
        query = query.distinct()
        yield from connection.execute(query).scalars()


def _digest_of_kind(kind: GrantKind) -> str:
    """The hash that is equal for grants of one kind only."""
    return _digest([kind.event_types, kind.shape])


def _digest_of_content(kind: GrantKind, where: Mapping[str, Any]) -> str:
    """The hash that is equal for grants that match the same events."""
    return _digest([kind.event_types, [[path, _number(where[path])] for path in kind.paths]])


def _number(value: Any) -> Any:
    # JSON has one type of numbers: 42.0 equals 42.
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


def _digest(content: Sequence[object]) -> str:
    return sha256(json.dumps(content).encode()).hexdigest()


def _to_value(grant: Grant) -> str:
    # As UTF-8, like the value of a rule: it fits into MySQL's TEXT.
    value = {"eventTypes": grant.event_types, "where": document_of(grant.where)}
    return json.dumps(value, ensure_ascii=False)


def to_grant(row: Row[Any]) -> Grant:
    """The grant of a row that is not deleted."""
    value = json.loads(row.value)
    return Grant(
        row.account_id, row.name, tuple(value["eventTypes"]), conditions_of(value["where"])
    )
