"""The table of delivery tallies: every statement on it.

Each data centre adds to rows of its own; who asks gets the sums of all.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, bindparam, delete, func, select

from app.domain.hours import HOUR_MS
from app.domain.missed import MissedHour, PastReplay, missed_hours
from app.domain.model import Window
from app.domain.states import ReplayState
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store import stored_options, webhooks
from app.store.tables import TOOK_COLUMNS, delivery_tallies, replays
from app.store.upsert import insert_or_change

ROWS_PER_ADD: Final = 500
"""A transaction of so many takes some ten milliseconds, and others wait no longer for its locks."""

FORGOTTEN_PER_CALL: Final = 500

REPLAYS_LOOKED_AT: Final = 1_000
"""The latest of a webhook that may tell that missed events were replayed."""

_COUNTS: Final = ("delivered", "failed", "left_over", "disabled", *TOOK_COLUMNS)
_LATEST: Final = ("missed_until_ms", "missed_at_ms")


def add(connection: Connection, counted: Sequence[CountedTally], origin: str) -> None:
    """Add what `origin` has counted to its rows; locks these, in the order of their key."""
    rows = [_to_row(each, origin) for each in counted]
    rows.sort(key=lambda row: (row["webhook_id"], row["span"], row["start_ms"]))
    # The larger of two is a function of two arguments that each database calls otherwise.
    larger = func.max if connection.dialect.name == "sqlite" else func.greatest
    columns = delivery_tallies.c
    statement = insert_or_change(
        connection,
        delivery_tallies,
        lambda offered: (
            {name: columns[name] + offered[name] for name in _COUNTS}
            | {name: larger(columns[name], offered[name]) for name in _LATEST}
        ),
    )
    if rows:
        connection.execute(statement, rows)


def _to_row(counted: CountedTally, origin: str) -> dict[str, Any]:
    tally = counted.tally
    return {
        "webhook_id": counted.webhook_id,
        "span": str(counted.span),
        "start_ms": tally.start_ms,
        "origin": origin,
        "delivered": tally.delivered,
        "failed": tally.failed,
        "left_over": tally.left_over,
        "disabled": tally.disabled,
        **dict(zip(TOOK_COLUMNS, tally.took, strict=True)),
        "missed_until_ms": tally.missed_until_ms,
        "missed_at_ms": tally.missed_at_ms,
    }


def of_webhook(
    connection: Connection, webhook_id: str, span: Span, from_ms: int, of_account: str | None
) -> tuple[DeliveryTally, ...]:
    """The tallies of a webhook that begin at `from_ms` or later, the earliest first.

    Raises:
        WebhookNotFound: see `webhooks.get`.
    """
    webhook = webhooks.get(connection, webhook_id, of_account)
    return _of_one(connection, webhook.id, span, from_ms)


def _of_one(
    connection: Connection, webhook_id: str, span: Span, from_ms: int
) -> tuple[DeliveryTally, ...]:
    start_ms = delivery_tallies.c.start_ms
    query = _sums(span, from_ms).add_columns(start_ms).group_by(start_ms).order_by(start_ms)
    query = query.where(delivery_tallies.c.webhook_id == webhook_id)
    return tuple(_to_tally(row, row.start_ms) for row in connection.execute(query))


def of_webhooks(
    connection: Connection, webhook_ids: Collection[str], span: Span, from_ms: int
) -> dict[str, DeliveryTally]:
    """One tally of each webhook, of all that begin at `from_ms` or later; none of who has none."""
    webhook_id = delivery_tallies.c.webhook_id
    query = _sums(span, from_ms).add_columns(webhook_id).group_by(webhook_id)
    rows = connection.execute(query.where(webhook_id.in_(webhook_ids)))
    return {row.webhook_id: _to_tally(row, from_ms) for row in rows}


def _sums(span: Span, from_ms: int) -> Select[Any]:
    columns = delivery_tallies.c
    sums = (func.sum(columns[name]).label(name) for name in _COUNTS)
    latest = (func.max(columns[name]).label(name) for name in _LATEST)
    return select(*sums, *latest).where(columns.span == str(span), columns.start_ms >= from_ms)


def _to_tally(row: Row[Any], start_ms: int) -> DeliveryTally:
    # MySQL's sums are decimals.
    found = row._asdict()
    numbers = {name: int(found[name]) for name in (*_COUNTS, *_LATEST)}
    took = tuple(numbers.pop(name) for name in TOOK_COLUMNS)
    return DeliveryTally(start_ms, took=took, **numbers)


def missed(
    connection: Connection, webhook_id: str, from_ms: int, of_account: str | None
) -> tuple[MissedHour, ...]:
    """The hours of event time since `from_ms` in which a webhook missed events, the earliest first.

    Raises:
        WebhookNotFound: see `webhooks.get`.
    """
    webhook = webhooks.get(connection, webhook_id, of_account)
    first_ms = -(-from_ms // HOUR_MS) * HOUR_MS
    found = _of_one(connection, webhook.id, Span.EVENT, first_ms)
    tallies = [each for each in found if each.missed]
    if not tallies:
        return ()
    since_ms = min(each.missed_at_ms for each in tallies)
    return missed_hours(tallies, _past_replays(connection, webhook.id, webhook.url, since_ms))


def _past_replays(
    connection: Connection, webhook_id: str, url: str, since_ms: int
) -> list[PastReplay]:
    columns = replays.c
    query = (
        select(
            *(columns.id, columns.from_ms, columns.to_ms, columns.failed),
            *(columns.retry_of, columns.created_ms, columns.options),
        )
        .where(columns.webhook_id == webhook_id, columns.created_ms > since_ms)
        .where(columns.state == str(ReplayState.COMPLETED))
        .order_by(columns.created_ms.desc())
        .limit(REPLAYS_LOOKED_AT)
    )
    found = []
    for row in connection.execute(query):
        options = stored_options.of_column(row.options)
        if not options.event_types and options.target_url in (None, url):
            window = Window(row.from_ms, row.to_ms)
            found.append(PastReplay(row.id, window, row.failed, row.retry_of, row.created_ms))
    return found


def forget(connection: Connection, span: Span, before_ms: int) -> int:
    """Delete some of the rows that begin before `before_ms`; how many.

    At most `FORGOTTEN_PER_CALL`. Locks these, and passes over what others are changing.
    """
    key = delivery_tallies.primary_key
    old = (
        select(*(each.label(f"its_{each.name}") for each in key))
        .where(delivery_tallies.c.span == str(span), delivery_tallies.c.start_ms < before_ms)
        .limit(FORGOTTEN_PER_CALL)
        .with_for_update(skip_locked=True)
    )
    rows = [row._asdict() for row in connection.execute(old)]
    if rows:
        is_it = (each == bindparam(f"its_{each.name}") for each in key)
        connection.execute(delete(delivery_tallies).where(*is_it), rows)
    return len(rows)
