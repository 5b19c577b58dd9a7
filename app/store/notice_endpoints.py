"""The table of notice endpoints.

`of_account` limits a function to the endpoints of one account; None means all accounts. Functions
that take an endpoint's id raise `NoticeEndpointNotFound` if it does not exist, or belongs to
another account. Functions that change an endpoint lock its row until the commit.
"""

import json
from collections.abc import Collection
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    select,
    true,
    update,
)

from app.domain.account_notices import (
    ENDPOINTS_PER_ACCOUNT_MAX,
    NewNoticeEndpoint,
    NoticeEndpoint,
    NoticeType,
)
from app.domain.model import WebhookStatus
from app.store.errors import NoticeEndpointNotFound, TooManyNoticeEndpoints
from app.store.notice_tables import account_notices, notice_endpoints
from app.store.pages import PAGE_LIMIT, Page, newest_first
from app.store.secret_keys import SecretKeys, keys_of, rotated_secret
from app.store.sql import TEXT_CHARS_MAX, exactly, new_id, now_ms
from app.store.tables import accounts

_row = notice_endpoints.c


def create_notice_endpoint(connection: Connection, new: NewNoticeEndpoint) -> NoticeEndpoint:
    """Insert a PENDING endpoint with a new id. Locks the account's row until the commit.

    Raises:
        TooManyNoticeEndpoints: the account has `ENDPOINTS_PER_ACCOUNT_MAX`.
    """
    # Concurrent requests would each count the endpoints before the others insert theirs.
    account = select(accounts.c.id).where(accounts.c.id == new.account_id)
    connection.execute(account.with_for_update())
    query = select(func.count()).where(_row.account_id == new.account_id)
    if connection.execute(query).scalar_one() >= ENDPOINTS_PER_ACCOUNT_MAX:
        raise TooManyNoticeEndpoints(new.account_id, ENDPOINTS_PER_ACCOUNT_MAX)
    endpoint_id = new_id("ne_")
    connection.execute(
        insert(notice_endpoints).values(
            id=endpoint_id,
            account_id=new.account_id,
            url=new.url,
            description=new.description,
            event_types=json.dumps(new.event_types),
            secret=keys_of(connection).encrypt(endpoint_id, new.secret),
            status=str(WebhookStatus.PENDING),
            created_ms=now_ms(),
        )
    )
    return get_notice_endpoint(connection, endpoint_id)


def get_notice_endpoint(
    connection: Connection, endpoint_id: str, *, of_account: str | None = None
) -> NoticeEndpoint:
    """The endpoint with this id."""
    return _one(connection, endpoint_id, _select(endpoint_id, of_account))


def lock_notice_endpoint(
    connection: Connection, endpoint_id: str, *, of_account: str | None = None
) -> NoticeEndpoint:
    """The endpoint with this id, locked until the commit."""
    query = _select(endpoint_id, of_account).with_for_update()
    return _one(connection, endpoint_id, query)


def _select(endpoint_id: str, of_account: str | None) -> Select[Any]:
    return select(notice_endpoints).where(_is(endpoint_id, of_account))


def _one(connection: Connection, endpoint_id: str, query: Select[Any]) -> NoticeEndpoint:
    row = connection.execute(query).first()
    if row is None:
        raise NoticeEndpointNotFound(endpoint_id)
    return to_endpoint(row, keys_of(connection))


def _is(endpoint_id: str, of_account: str | None = None) -> ColumnElement[bool]:
    return and_(exactly(_row.id, endpoint_id), _belongs_to(of_account))


def _belongs_to(of_account: str | None) -> ColumnElement[bool]:
    return true() if of_account is None else _row.account_id == of_account


def list_notice_endpoints(
    connection: Connection,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
    *,
    of_account: str | None = None,
) -> Page[NoticeEndpoint]:
    """A page of the endpoints, newest first.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    query = select(notice_endpoints).where(_belongs_to(of_account))
    to_item = partial(to_endpoint, keys=keys_of(connection))
    return newest_first(connection, query, (_row.created_ms, _row.id), cursor, limit, to_item)


def list_endpoint_ids(connection: Connection, account_ids: Collection[str]) -> list[str]:
    """The ids of all endpoints of these accounts."""
    query = select(_row.id).where(_row.account_id.in_(account_ids))
    return list(connection.execute(query).scalars())


def update_notice_endpoint(
    connection: Connection,
    endpoint_id: str,
    *,
    url: str | None = None,
    refusal: str | None = None,
    description: str | None = None,
    event_types: Collection[NoticeType] | None = None,
    of_account: str | None = None,
) -> NoticeEndpoint:
    """Change what is not None, and return the endpoint; empty `event_types` are all.

    With a new URL it is ENABLED if the receiver there was verified, and PENDING because of
    `refusal` otherwise.
    """
    endpoint = lock_notice_endpoint(connection, endpoint_id, of_account=of_account)
    values: dict[str, Any] = {}
    if description is not None:
        values["description"] = description
    if event_types is not None:
        values["event_types"] = json.dumps(list(event_types))
    if url not in (None, endpoint.url):
        values |= {
            "url": url,
            "status": str(WebhookStatus.PENDING if refusal else WebhookStatus.ENABLED),
            "status_reason": refusal and refusal[:TEXT_CHARS_MAX],
            "validated_ms": None if refusal else now_ms(),
        }
    return _update(connection, endpoint_id, values) if values else endpoint


def enable_notice_endpoint(
    connection: Connection, endpoint_id: str, at_url: str | None = None
) -> NoticeEndpoint:
    """Enable the endpoint, whose receiver was verified at `at_url`.

    No change if it has another URL now.
    """
    endpoint = lock_notice_endpoint(connection, endpoint_id)
    if at_url not in (None, endpoint.url):
        return endpoint
    values = {"status": str(WebhookStatus.ENABLED), "status_reason": None, "validated_ms": now_ms()}
    return _update(connection, endpoint_id, values)


def refuse_notice_endpoint(
    connection: Connection, endpoint_id: str, at_url: str, reason: str
) -> NoticeEndpoint:
    """Store why the verification of `at_url` failed; the endpoint keeps its status.

    No change if it has another URL now.
    """
    endpoint = lock_notice_endpoint(connection, endpoint_id)
    if at_url != endpoint.url:
        return endpoint
    return _update(connection, endpoint_id, {"status_reason": reason[:TEXT_CHARS_MAX]})


def rotate_notice_secret(
    connection: Connection,
    endpoint_id: str,
    secret: str,
    grace_ms: int,
    *,
    of_account: str | None = None,
) -> NoticeEndpoint:
    """Replace the endpoint's secret; the previous one also signs for `grace_ms`.

    The current secret changes nothing: a repeated request would lose the previous secret.
    """
    endpoint = lock_notice_endpoint(connection, endpoint_id, of_account=of_account)
    if endpoint.secret == secret:
        return endpoint
    values = rotated_secret(connection, endpoint_id, endpoint.secret, secret, grace_ms)
    return _update(connection, endpoint_id, values)


def disable_notice_endpoint(
    connection: Connection,
    endpoint_id: str,
    reason: str,
    *,
    at_url: str | None = None,
    of_account: str | None = None,
) -> NoticeEndpoint:
    """Disable the endpoint because of `reason`, and delete its notices. Locks their rows, too.

    No change if the receiver that caused it was at `at_url`, and the endpoint has another URL now.
    """
    endpoint = lock_notice_endpoint(connection, endpoint_id, of_account=of_account)
    if at_url not in (None, endpoint.url):
        return endpoint
    _delete_notices(connection, endpoint_id)
    values = {"status": str(WebhookStatus.DISABLED), "status_reason": reason[:TEXT_CHARS_MAX]}
    return _update(connection, endpoint_id, values)


def _update(connection: Connection, endpoint_id: str, values: dict[str, Any]) -> NoticeEndpoint:
    connection.execute(update(notice_endpoints).where(_is(endpoint_id)).values(values))
    return get_notice_endpoint(connection, endpoint_id)


def delete_notice_endpoint(
    connection: Connection, endpoint_id: str, *, of_account: str | None = None
) -> None:
    """Delete the endpoint, and the notices that were not sent to it."""
    deleted = connection.execute(delete(notice_endpoints).where(_is(endpoint_id, of_account)))
    if not deleted.rowcount:
        raise NoticeEndpointNotFound(endpoint_id)
    _delete_notices(connection, endpoint_id)


def _delete_notices(connection: Connection, endpoint_id: str) -> None:
    connection.execute(delete(account_notices).where(account_notices.c.endpoint_id == endpoint_id))


def to_endpoint(row: Row[Any], keys: SecretKeys) -> NoticeEndpoint:
    """The endpoint of a row of the table, with its secret decrypted.

    Raises:
        SecretUnreadable: see `SecretKeys.decrypt`.
    """
    previous = row.previous_secret
    return NoticeEndpoint(
        id=row.id,
        account_id=row.account_id,
        url=row.url,
        description=row.description,
        event_types=tuple(map(NoticeType, json.loads(row.event_types))),
        status=WebhookStatus(row.status),
        status_reason=row.status_reason,
        secret=keys.decrypt(row.id, row.secret),
        previous_secret=None if previous is None else keys.decrypt(row.id, previous),
        previous_secret_until_ms=row.previous_secret_until_ms,
        created_ms=row.created_ms,
        validated_ms=row.validated_ms,
        delivered_ms=row.delivered_ms,
        failed_ms=row.failed_ms,
        failure=row.failure,
    )
