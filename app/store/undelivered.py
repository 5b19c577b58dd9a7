"""Which webhooks have events that are not delivered. Locks nothing."""

from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, FromClause, Select, func, select, union_all

from app.domain.deliveries import DeliveryStatus
from app.domain.live_backlog import CURRENT_MS
from app.domain.model import Window
from app.domain.tallies import Span
from app.store.resend_tables import resends
from app.store.sql import now_ms
from app.store.tables import delivery_tallies, live_backlogs, webhooks

_tally: Final = delivery_tallies.c

_MISSED: Final = {
    DeliveryStatus.FAILED: _tally.failed,
    DeliveryStatus.SKIPPED: _tally.left_over + _tally.disabled,
}


class UndeliveredWebhooks(NamedTuple):
    """The ids of webhooks, those with most events first, and how many webhooks there are in all."""

    ids: tuple[str, ...]
    total: int


def list_undelivered_webhooks(
    connection: Connection,
    status: DeliveryStatus,
    window: Window,
    limit: int,
    *,
    origin: str,
    of_account: str | None = None,
) -> UndeliveredWebhooks:
    """The webhooks with events of a data centre that failed, were skipped, or are pending.

    Failed and skipped events are those of the hours of the window, by the tallies. Pending ones
    wait for a retry, whatever their time: a live one, by the backlogs, or a scheduled one.
    """
    if status is DeliveryStatus.PENDING:
        counted = _waiting(origin, of_account)
    else:
        counted = _missed(status, window, origin, of_account)
    found = counted.subquery()
    ranked = (
        select(found.c.webhook_id, func.count().over())
        .group_by(found.c.webhook_id)
        .order_by(func.sum(found.c.events).desc(), found.c.webhook_id)
        .limit(limit)
    )
    rows = connection.execute(ranked).all()
    return UndeliveredWebhooks(tuple(row[0] for row in rows), rows[0][1] if rows else 0)


def _missed(
    status: DeliveryStatus, window: Window, origin: str, of_account: str | None
) -> Select[Any]:
    events, width_ms = _MISSED[status], Span.EVENT.width_ms
    return _of_existing(delivery_tallies, events, of_account).where(
        _tally.span == str(Span.EVENT),
        _tally.start_ms > window.from_ms - width_ms,
        _tally.start_ms < window.to_ms,
        _tally.origin == origin,
        events > 0,
    )


def _waiting(origin: str, of_account: str | None) -> Any:
    retry, backlog = resends.c, live_backlogs.c
    scheduled = _of_existing(resends, func.count(), of_account).where(
        retry.origin == origin,
        retry.status == str(DeliveryStatus.PENDING),
        retry.retry_number.is_not(None),
    )
    live = _of_existing(live_backlogs, backlog.waiting, of_account).where(
        backlog.origin == origin, backlog.updated_ms >= now_ms() - CURRENT_MS, backlog.waiting > 0
    )
    return union_all(scheduled.group_by(retry.webhook_id), live)


def _of_existing(
    table: FromClause, events: ColumnElement[Any], of_account: str | None
) -> Select[Any]:
    """A query of webhook ids and numbers of events, of the webhooks of an account, or of all."""
    row, webhook_id = webhooks.c, table.c.webhook_id
    query = (
        select(webhook_id.label("webhook_id"), events.label("events"))
        .select_from(webhooks.join(table, webhook_id == row.id))
        .where(row.deleted_ms.is_(None))
    )
    return query if of_account is None else query.where(row.account_id == of_account)
