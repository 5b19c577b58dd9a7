"""Sums over the webhooks of an account, or of all. Locks nothing.

They read one row for each webhook, and for each webhook and time span: 120,000 rows for five days
of a thousand webhooks.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Subquery, and_, case, func, select, true

from app.domain.live_backlog import CURRENT_MS, WebhookHealth
from app.domain.model import Webhook, WebhookStatus
from app.domain.options import ReplayReason
from app.domain.tallies import DeliveryTally, Span
from app.store.scheduled_retries import count_all_waiting_retries
from app.store.secret_keys import keys_of
from app.store.sql import now_ms
from app.store.tables import delivery_tallies, live_backlogs, replays, webhooks
from app.store.tallies import SPAN_BY_SCAN, select_sums, sum_tallies, to_tally
from app.store.webhooks import to_webhook


@dataclass(frozen=True, slots=True)
class WebhookTotals:
    """The number of webhooks by health or, if they are not ENABLED, by status.

    `waiting_events` are their events in the live backlogs of failing webhooks, `retried_events`
    those that wait for a scheduled retry.
    """

    healthy: int = 0
    failing: int = 0
    recovering: int = 0
    pending: int = 0
    disabled: int = 0
    waiting_events: int = 0
    retried_events: int = 0


def sum_tallies_by_start(
    connection: Connection, span: Span, from_ms: int, *, of_account: str | None = None
) -> tuple[DeliveryTally, ...]:
    """The sums of all webhooks per time span that starts at `from_ms` or later, oldest first.

    Includes webhooks that were deleted since.
    """
    start_ms = delivery_tallies.c.start_ms
    by_scan = of_account is None and _has_most(connection, span, from_ms)
    sums = select_sums(span, from_ms, by_scan=by_scan).where(_is_tally_of(of_account))
    query = sums.add_columns(start_ms).group_by(start_ms).order_by(start_ms)
    rows = connection.execute(query)
    return tuple(to_tally(row, row.start_ms) for row in rows)


def _has_most(connection: Connection, span: Span, from_ms: int) -> bool:
    """Whether most tallies of a span start at `from_ms` or later, by the first and the last one."""
    start_ms, is_of_span = delivery_tallies.c.start_ms, delivery_tallies.c.span == str(span)
    ends = (select(end(start_ms)).where(is_of_span) for end in (func.min, func.max))
    first_ms, last_ms = connection.execute(select(*(each.scalar_subquery() for each in ends))).one()
    return first_ms is not None and from_ms - first_ms < last_ms - from_ms


def _is_tally_of(account_id: str | None) -> ColumnElement[bool]:
    if account_id is None:
        return true()
    ids = select(webhooks.c.id).where(_belongs_to(account_id))
    return delivery_tallies.c.webhook_id.in_(ids)


def _belongs_to(account_id: str | None) -> ColumnElement[bool]:
    return true() if account_id is None else webhooks.c.account_id == account_id


def list_most_missed(
    connection: Connection, span: Span, from_ms: int, limit: int, *, of_account: str | None = None
) -> tuple[tuple[str, DeliveryTally], ...]:
    """The ids of the webhooks that missed most events since `from_ms`, with their sums."""
    row, tally = webhooks.c, delivery_tallies.c
    missed = tally.failed + tally.left_over + tally.disabled
    # An account has few of the rows.
    of_span = SPAN_BY_SCAN if of_account is None else tally.span
    ranked = (
        select(row.id)
        .join(delivery_tallies, tally.webhook_id == row.id)
        .where(row.deleted_ms.is_(None), _belongs_to(of_account))
        .where(of_span == str(span), tally.start_ms >= from_ms, missed > 0)
        .group_by(row.id)
        .order_by(func.sum(missed).desc(), row.id)
        .limit(limit)
    )
    ids = connection.execute(ranked).scalars().all()
    sums = sum_tallies(connection, ids, span, from_ms)
    return tuple((each, sums[each]) for each in ids)


def find_webhooks(connection: Connection, webhook_ids: Collection[str]) -> dict[str, Webhook]:
    """The existing webhooks among at most `IDS_PER_QUERY`, by id."""
    row, keys = webhooks.c, keys_of(connection)
    query = select(webhooks).where(row.id.in_(webhook_ids), row.deleted_ms.is_(None))
    return {each.id: to_webhook(each, keys) for each in connection.execute(query)}


def count_webhooks_by_health(
    connection: Connection, *, of_account: str | None = None
) -> WebhookTotals:
    """The current totals. The health is that of `health_of`."""
    row, backlogs = webhooks.c, _current_backlogs()
    backlog = backlogs.c
    health = case(
        (row.status != str(WebhookStatus.ENABLED), func.lower(row.status)),
        (backlog.is_recovering == 1, str(WebhookHealth.RECOVERING)),
        (backlog.is_recovering == 0, str(WebhookHealth.FAILING)),
        (row.failing_since_ms.is_not(None), str(WebhookHealth.FAILING)),
        (replays.c.id.is_not(None), str(WebhookHealth.RECOVERING)),
        else_=str(WebhookHealth.HEALTHY),
    ).label("health")
    is_recovery = and_(
        replays.c.active_webhook_id == row.id, replays.c.reason == str(ReplayReason.RECOVERY)
    )
    joined = webhooks.outerjoin(backlogs, backlog.webhook_id == row.id)
    query = (
        select(health, func.count(), func.coalesce(func.sum(backlog.waiting), 0))
        .select_from(joined.outerjoin(replays, is_recovery))
        .where(row.deleted_ms.is_(None), _belongs_to(of_account))
        .group_by(health)
    )
    counts: dict[str, int] = {}
    waiting = 0
    for name, count, events in connection.execute(query):
        counts[name] = count
        # MySQL returns sums as decimals.
        waiting += int(events)
    retried = count_all_waiting_retries(connection, _belongs_to(of_account))
    return WebhookTotals(**counts, waiting_events=waiting, retried_events=retried)


def _current_backlogs() -> Subquery:
    """The backlogs of webhooks; of several data centres, their sum."""
    row = live_backlogs.c
    return (
        select(
            row.webhook_id,
            func.sum(row.waiting).label("waiting"),
            func.min(row.is_recovering).label("is_recovering"),
        )
        .where(row.updated_ms >= now_ms() - CURRENT_MS)
        .group_by(row.webhook_id)
        .subquery()
    )
