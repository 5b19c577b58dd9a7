"""The table of delivery tallies. Each data centre has its own rows; reads return the sums.

`of_account` and `WebhookNotFound` are those of `webhooks`.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
)

from app.domain.hours import HOUR_MS
from app.domain.missed import MissedHour, PastReplay, missed_hours
from app.domain.model import Window, recovered_origin
from app.domain.options import ReplayReason
from app.domain.states import ReplayState
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store.replay_columns import options_from_column
from app.store.sql import larger, upsert
from app.store.tables import (
    TALLY_COUNTS,
    TALLY_START_INDEX,
    TOOK_COLUMNS,
    delivery_tallies,
    replays,
)
from app.store.webhooks import get_webhook

ROWS_PER_ADD: Final = 500
"""A transaction with this many rows holds its locks for about ten milliseconds."""

DELETED_PER_CALL: Final = 500

REPLAYS_READ_MAX: Final = 1_000
"""The latest replays of a webhook that are checked for replayed hours."""

_LATEST: Final = ("missed_until_ms", "missed_at_ms")

_ZERO: Final[ColumnElement[Any]] = literal_column("0")
"""PyMySQL accepts no parameters behind the values of an INSERT of many rows."""


SPAN_BY_SCAN: Final[ColumnElement[Any]] = literal_column("+delivery_tallies.span")
"""The column `span`, with a sign that keeps SQLite from using an index.

To look up 120,000 rows in the order of an index takes three times as long as to scan the table.
MySQL ignores the sign.
"""


def add_tallies(connection: Connection, counted: Sequence[CountedTally], *, origin: str) -> None:
    """Add the counts of a data centre to its rows; `ROWS_PER_ADD` at most, no row twice.

    Locks the rows in the order of their key. A call that fails may have been committed: adding
    the same again would count it twice.
    """
    rows = [_to_row(each, origin) for each in counted]
    rows.sort(key=lambda row: (row["webhook_id"], row["span"], row["start_ms"]))
    columns = delivery_tallies.c
    statement = upsert(
        connection,
        delivery_tallies,
        lambda new: (
            {name: columns[name] + new[name] for name in TALLY_COUNTS}
            | {name: larger(connection, columns[name], new[name]) for name in _LATEST}
            | {"missed_from_ms": _earlier(columns.missed_from_ms, new["missed_from_ms"])}
        ),
    )
    if rows:
        connection.execute(statement, rows)


def _earlier(old: ColumnElement[int], new: ColumnElement[int]) -> ColumnElement[int]:
    """Return the smaller of two times, where 0 means no time."""
    return case((old == _ZERO, new), (new == _ZERO, old), (old < new, old), else_=new)


def _to_row(counted: CountedTally, origin: str) -> dict[str, Any]:
    tally = counted.tally
    return {
        "webhook_id": counted.webhook_id,
        "span": str(counted.span),
        "start_ms": tally.start_ms,
        "origin": origin,
        "delivered": tally.delivered,
        "failed": tally.failed,
        "left_over": tally.skipped,
        "disabled": tally.disabled,
        **dict(zip(TOOK_COLUMNS, tally.took, strict=True)),
        "missed_until_ms": tally.missed_until_ms,
        "missed_at_ms": tally.missed_at_ms,
        "missed_from_ms": tally.missed_from_ms,
    }


def list_tallies(
    connection: Connection,
    webhook_id: str,
    span: Span,
    from_ms: int,
    *,
    of_account: str | None = None,
) -> tuple[DeliveryTally, ...]:
    """The tallies of a webhook that start at `from_ms` or later, oldest first.

    A span in which nothing was counted has none.
    """
    webhook = get_webhook(connection, webhook_id, of_account=of_account)
    return _tallies_of_one(connection, webhook.id, span, from_ms)


def _tallies_of_one(
    connection: Connection, webhook_id: str, span: Span, from_ms: int
) -> tuple[DeliveryTally, ...]:
    start_ms = delivery_tallies.c.start_ms
    query = select_sums(span, from_ms).add_columns(start_ms).group_by(start_ms).order_by(start_ms)
    query = query.where(delivery_tallies.c.webhook_id == webhook_id)
    return tuple(to_tally(row, row.start_ms) for row in connection.execute(query))


def sum_tallies(
    connection: Connection, webhook_ids: Collection[str], span: Span, from_ms: int
) -> dict[str, DeliveryTally]:
    """The sum of each webhook's tallies that start at `from_ms` or later, by webhook id.

    One query, for at most 500 existing webhooks; a webhook without tallies is left out.
    """
    webhook_id = delivery_tallies.c.webhook_id
    query = select_sums(span, from_ms).add_columns(webhook_id).group_by(webhook_id)
    rows = connection.execute(query.where(webhook_id.in_(webhook_ids)))
    return {row.webhook_id: to_tally(row, from_ms) for row in rows}


def select_sums(span: Span, from_ms: int, *, by_scan: bool = False) -> Select[Any]:
    """A query of the sums of all tallies of a span that start at `from_ms` or later.

    `by_scan` is for queries of most rows, see `SPAN_BY_SCAN`.
    """
    columns = delivery_tallies.c
    sums = (func.sum(columns[name]).label(name) for name in TALLY_COUNTS)
    latest = (func.max(columns[name]).label(name) for name in _LATEST)
    # Of data centres that missed nothing, it is 0.
    earliest = func.min(func.nullif(columns.missed_from_ms, 0)).label("missed_from_ms")
    of_span = SPAN_BY_SCAN if by_scan else columns.span
    query = select(*sums, *latest, earliest)
    if by_scan:
        # MariaDB estimates the look-ups to be cheaper, which take twice as long, or more.
        query = query.with_hint(delivery_tallies, f"IGNORE INDEX ({TALLY_START_INDEX})", "mysql")
    return query.where(of_span == str(span), columns.start_ms >= from_ms)


def to_tally(row: Row[Any], start_ms: int) -> DeliveryTally:
    """The tally of a row of `select_sums`, as one that starts at `start_ms`."""
    # MySQL returns sums as decimals.
    found = row._asdict()
    numbers = {name: int(found[name]) for name in (*TALLY_COUNTS, *_LATEST)}
    took = tuple(numbers.pop(name) for name in TOOK_COLUMNS)
    earliest_ms = int(found["missed_from_ms"] or 0)
    skipped = numbers.pop("left_over")
    return DeliveryTally(
        start_ms, skipped=skipped, took=took, missed_from_ms=earliest_ms, **numbers
    )


def list_missed_hours(
    connection: Connection, webhook_id: str, from_ms: int, *, of_account: str | None = None
) -> tuple[MissedHour, ...]:
    """The full hours of event time since `from_ms` with events that the webhook missed."""
    webhook = get_webhook(connection, webhook_id, of_account=of_account)
    first_ms = -(-from_ms // HOUR_MS) * HOUR_MS
    tallies = _missed_by_origin(connection, webhook.id, first_ms)
    if not tallies:
        return ()
    since_ms = min(tally.missed_at_ms for _, tally in tallies)
    return missed_hours(tallies, _past_replays(connection, webhook.id, webhook.url, since_ms))


def _missed_by_origin(
    connection: Connection, webhook_id: str, from_ms: int
) -> list[tuple[str, DeliveryTally]]:
    """The tallies with missed events of each data centre, by event time, oldest first."""
    columns = delivery_tallies.c
    key = (columns.start_ms, columns.origin)
    query = select_sums(Span.EVENT, from_ms).add_columns(*key).group_by(*key).order_by(*key)
    rows = connection.execute(query.where(columns.webhook_id == webhook_id))
    found = [(row.origin, to_tally(row, row.start_ms)) for row in rows]
    return [(origin, tally) for origin, tally in found if tally.missed]


def _past_replays(
    connection: Connection, webhook_id: str, url: str, since_ms: int
) -> list[PastReplay]:
    columns = replays.c
    query = (
        select(
            *(columns.id, columns.from_ms, columns.to_ms, columns.failed),
            *(columns.retry_of, columns.created_ms, columns.options),
            *(columns.origin, columns.reason),
        )
        .where(columns.webhook_id == webhook_id, columns.created_ms > since_ms)
        .where(columns.state == str(ReplayState.COMPLETED))
        .order_by(columns.created_ms.desc())
        .limit(REPLAYS_READ_MAX)
    )
    found = []
    for row in connection.execute(query):
        options = options_from_column(row.options)
        if not options.event_types and options.target_url in (None, url):
            window = Window(row.from_ms, row.to_ms)
            counted = (row.failed, row.retry_of, row.created_ms)
            origin = recovered_origin(ReplayReason(row.reason), row.origin)
            found.append(PastReplay(row.id, window, *counted, origin))
    return found


def delete_tallies(connection: Connection, span: Span, before_ms: int) -> bool:
    """Delete up to `DELETED_PER_CALL` tallies that start before `before_ms`.

    Returns whether there may be more. Locks the deleted rows; skips rows that others are changing.
    """
    key = delivery_tallies.primary_key
    old = (
        select(*(each.label(f"its_{each.name}") for each in key))
        .where(delivery_tallies.c.span == str(span), delivery_tallies.c.start_ms < before_ms)
        .limit(DELETED_PER_CALL)
        .with_for_update(skip_locked=True)
    )
    rows = [row._asdict() for row in connection.execute(old)]
    if rows:
        is_row = (each == bindparam(f"its_{each.name}") for each in key)
        connection.execute(delete(delivery_tallies).where(*is_row), rows)
    return len(rows) == DELETED_PER_CALL
