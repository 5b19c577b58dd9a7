"""Notices of accounts that are due to their endpoints: an outbox.

The transaction that changes a webhook, or claims the end of a replay, inserts a row for each
endpoint of the account; without endpoints that costs one lookup by index. A claim increments the
attempt number and postpones the notice, so it is claimed again if no result is recorded. A row is
deleted once it is delivered or given up.
"""

import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, and_, delete, func, insert, select, update

from app.domain.account_notices import (
    FAILURE_CHARS_MAX,
    KEPT_MS,
    PENDING_PER_ENDPOINT_MAX,
    AccountNotice,
    NoticeType,
    account_notice_body,
)
from app.domain.mail import mail_address
from app.domain.model import WebhookStatus
from app.store.errors import NoticeEndpointNotFound, SecretUnreadable
from app.store.notice_endpoints import get_notice_endpoint
from app.store.notice_tables import DUE_INDEX, account_notices, notice_endpoints
from app.store.sql import ms_from_now, new_id, now_ms
from app.store.tables import webhooks

DROPPED_PER_CLAIM: Final = 100
"""Notices that one claim drops or postpones, each under a lock."""

ROWS_PER_CALL: Final = 1_000

_log: Final = logging.getLogger(__name__)

_row = account_notices.c


def record_account_notice(
    connection: Connection,
    notice_type: NoticeType,
    account_id: str,
    webhook_id: str,
    data: Mapping[str, Any],
    *,
    delay_ms: int = 0,
) -> None:
    """Store a notice for each ENABLED endpoint of the account that gets this type.

    It is of the time at which it is due, `delay_ms` from now.
    """
    notice_id = new_id("ntc_")
    for endpoint in _endpoints_for(connection, notice_type, account_id):
        connection.execute(
            insert(account_notices).values(
                id=notice_id,
                endpoint_id=endpoint.id,
                webhook_id=webhook_id,
                type=str(notice_type),
                body=account_notice_body(notice_type, endpoint.present_ms + delay_ms, data),
                due_ms=endpoint.present_ms + delay_ms,
                attempts=0,
                is_mail=int(mail_address(endpoint.url) is not None),
            )
        )


def _endpoints_for(
    connection: Connection, notice_type: NoticeType, account_id: str
) -> list[Row[Any]]:
    """The rows of the endpoints that get a notice now."""
    pending = (
        select(func.count())
        .where(_row.endpoint_id == notice_endpoints.c.id)
        .correlate(notice_endpoints)
        .scalar_subquery()
    )
    query = select(
        notice_endpoints.c.id,
        notice_endpoints.c.url,
        notice_endpoints.c.event_types,
        now_ms().label("present_ms"),
    ).where(
        notice_endpoints.c.account_id == account_id,
        notice_endpoints.c.status == str(WebhookStatus.ENABLED),
        pending < PENDING_PER_ENDPOINT_MAX,
    )
    return [
        row
        for row in connection.execute(query)
        if notice_type in (json.loads(row.event_types) or NoticeType)
    ]


def drop_future_notices(
    connection: Connection, webhook_id: str, notice_types: Collection[NoticeType]
) -> None:
    """Delete notices about the webhook that are not due yet. Locks their rows."""
    is_future = and_(
        _row.webhook_id == webhook_id,
        _row.type.in_([str(each) for each in notice_types]),
        _row.attempts == 0,
        _row.due_ms > now_ms(),
    )
    connection.execute(delete(account_notices).where(is_future))


def is_any_account_notice_due(
    connection: Connection, busy: Collection[str], *, with_mails: bool = True
) -> bool:
    """Whether a claim would find a notice. Locks nothing."""
    return connection.execute(_select_due(busy, with_mails)).first() is not None


def claim_due_account_notice(
    connection: Connection, lease_s: float, busy: Collection[str], *, with_mails: bool = True
) -> AccountNotice | None:
    """Claim the notice that has been due longest, for `lease_s`; None if none is due.

    Skips endpoints whose ids are in `busy`, and mails unless `with_mails`. Drops notices of
    endpoints that are not ENABLED any more, and postpones those of an endpoint whose secret is
    unreadable. Locks the rows that it reads until the commit; skips rows that others are claiming.
    """
    for _ in range(DROPPED_PER_CLAIM):
        query = _select_due(busy, with_mails).with_for_update(skip_locked=True)
        row = connection.execute(query).first()
        if row is None:
            return None
        is_row = and_(_row.id == row.id, _row.endpoint_id == row.endpoint_id)
        try:
            notice = _to_notice(connection, row)
        except SecretUnreadable as error:
            fields = {"notice": row.id, "endpoint": row.endpoint_id, "reason": str(error)}
            _log.warning("notice-secret-unreadable", extra=fields)
            postponed = update(account_notices).where(is_row)
            connection.execute(postponed.values(due_ms=ms_from_now(lease_s)))
            busy = {*busy, row.endpoint_id}
            continue
        if notice is not None:
            values = {"due_ms": ms_from_now(lease_s), "attempts": notice.attempt}
            connection.execute(update(account_notices).where(is_row).values(values))
            return notice
        connection.execute(delete(account_notices).where(is_row))
    return None


def _select_due(busy: Collection[str], with_mails: bool) -> Select[Any]:
    query = (
        select(account_notices)
        # For the same reason as in `leases`.
        .with_hint(account_notices, f"FORCE INDEX ({DUE_INDEX})", "mysql")
        .where(_row.due_ms <= now_ms(), _row.endpoint_id.not_in(busy))
        .order_by(_row.due_ms)
        .limit(1)
    )
    return query if with_mails else query.where(_row.is_mail == 0)


def _to_notice(connection: Connection, row: Row[Any]) -> AccountNotice | None:
    """The notice of a row; None if its endpoint gets none any more."""
    try:
        endpoint = get_notice_endpoint(connection, row.endpoint_id)
    except NoticeEndpointNotFound:
        return None
    if endpoint.status is not WebhookStatus.ENABLED:
        return None
    name = ""
    if endpoint.mail_address is not None:
        description = select(webhooks.c.description).where(webhooks.c.id == row.webhook_id)
        name = connection.execute(description).scalar() or ""
    return AccountNotice(row.id, endpoint, row.body.encode(), row.attempts + 1, name)


def finish_account_notice(
    connection: Connection,
    notice: AccountNotice,
    failure: str | None = None,
    *,
    retry_in_s: float | None = None,
) -> None:
    """End an attempt, which failed because of `failure` unless that is None.

    The next is due in `retry_in_s`; without, the notice is deleted. Does nothing if a later attempt
    has begun. Locks the rows of the notice and of its endpoint.
    """
    is_attempt = and_(
        _row.id == notice.id,
        _row.endpoint_id == notice.endpoint.id,
        _row.attempts == notice.attempt,
    )
    if failure is None or retry_in_s is None:
        changed = connection.execute(delete(account_notices).where(is_attempt))
    else:
        postponed = update(account_notices).where(is_attempt)
        changed = connection.execute(postponed.values(due_ms=ms_from_now(retry_in_s)))
    if not changed.rowcount:
        return
    values: Mapping[str, Any] = {"delivered_ms": now_ms()}
    if failure is not None:
        values = {"failed_ms": now_ms(), "failure": failure[:FAILURE_CHARS_MAX]}
    is_endpoint = notice_endpoints.c.id == notice.endpoint.id
    connection.execute(update(notice_endpoints).where(is_endpoint).values(values))


def delete_stale_account_notices(connection: Connection) -> int:
    """Delete notices that no worker has claimed for `KEPT_MS`; returns how many.

    At most `ROWS_PER_CALL`. Locks the deleted rows.
    """
    is_stale = _row.due_ms < now_ms() - KEPT_MS
    # Without a lock: the deletion locks by primary key only.
    found = select(_row.id).where(is_stale).limit(ROWS_PER_CALL)
    ids = sorted(set(connection.execute(found).scalars()))
    if not ids:
        return 0
    return connection.execute(delete(account_notices).where(_row.id.in_(ids), is_stale)).rowcount
