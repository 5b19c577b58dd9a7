"""Samples of the log over time, of the log of one data centre."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, update

from app.domain.log_samples import MINUTES_KEPT_MS, LogSample, SampleSpan, Series
from app.domain.windows import MINUTE_MS
from app.store.engine import Database
from app.store.log_sample_tables import NAME_CHARS_MAX, log_samples
from app.store.log_sample_tables import log_sample_states as states
from app.store.sql import larger, now_ms, upsert

_SPANS_PER_DELETE: Final = 10
"""A call deletes the rows of so many spans at most: usually those of one."""


class LogSamples:
    """The samples of the log of one data centre. Thread-safe; a call is a transaction."""

    def __init__(self, database: Database, origin: str) -> None:
        self._database = database
        self._origin = origin

    def claim_minute(self) -> int | None:
        """Claim the present minute, and return its start; None if a process has claimed it."""
        return self._database.write(_claim_minute, self._origin)

    def add(self, minute_ms: int, found: Mapping[Series, LogSample]) -> None:
        """Store what was read in a minute, once. Names that are too long are left out."""
        self._database.write(_add_samples, self._origin, minute_ms, found)

    def list(self, series: Series, span: SampleSpan, from_ms: int) -> tuple[LogSample, ...]:
        """The samples of a series that start at `from_ms` or later, oldest first."""
        return self._database.read(_list_samples, self._origin, series, span, from_ms)

    def delete_expired(self, minute_ms: int, kept_ms: int) -> bool:
        """Delete some samples that are older than `kept_ms`, of minutes after three hours.

        Returns whether there may be more.
        """
        before = {
            SampleSpan.MINUTE: minute_ms - min(kept_ms, MINUTES_KEPT_MS),
            SampleSpan.TEN_MINUTES: minute_ms - kept_ms,
        }
        counts = [
            self._database.write(_delete_samples, self._origin, span, before_ms)
            for span, before_ms in before.items()
        ]
        return any(counts)


def _claim_minute(connection: Connection, origin: str) -> int | None:
    present_ms = int(connection.execute(select(now_ms())).scalar_one())
    minute_ms = present_ms // MINUTE_MS * MINUTE_MS
    query = select(states.c.minute_ms).where(states.c.origin == origin)
    last_ms = connection.execute(query).scalar()
    if last_ms is None:
        # If another process inserts it first, the transaction runs again.
        connection.execute(insert(states).values(origin=origin, minute_ms=minute_ms))
        return minute_ms
    if last_ms == minute_ms:
        return None
    # A clock that was set back claims earlier minutes again.
    taken = update(states).where(states.c.origin == origin, states.c.minute_ms == last_ms)
    return minute_ms if connection.execute(taken.values(minute_ms=minute_ms)).rowcount else None


def _add_samples(
    connection: Connection, origin: str, minute_ms: int, found: Mapping[Series, LogSample]
) -> None:
    rows = [
        {
            "origin": origin,
            "kind": str(series.kind),
            "name": series.name,
            "span": str(span),
            "start_ms": minute_ms // span.width_ms * span.width_ms,
            "value": sample.value,
            "bytes": sample.bytes,
        }
        for series, sample in sorted(found.items())
        if len(series.name) <= NAME_CHARS_MAX
        for span in SampleSpan
    ]
    statement = upsert(
        connection,
        log_samples,
        lambda new: {
            "value": larger(connection, log_samples.c.value, new["value"]),
            "bytes": new["bytes"],
        },
    )
    if rows:
        connection.execute(statement, rows)


def _list_samples(
    connection: Connection, origin: str, series: Series, span: SampleSpan, from_ms: int
) -> tuple[LogSample, ...]:
    columns = log_samples.c
    query = (
        select(columns.start_ms, columns.value, columns.bytes)
        .where(columns.origin == origin, columns.kind == str(series.kind))
        .where(columns.name == series.name, columns.span == str(span))
        .where(columns.start_ms >= from_ms)
        .order_by(columns.start_ms)
    )
    return tuple(LogSample(*row) for row in connection.execute(query))


def _delete_samples(connection: Connection, origin: str, span: SampleSpan, before_ms: int) -> int:
    columns = log_samples.c
    is_meant = (columns.origin == origin) & (columns.span == str(span))
    oldest_ms = connection.execute(select(func.min(columns.start_ms)).where(is_meant)).scalar()
    if oldest_ms is None or oldest_ms >= before_ms:
        return 0
    end_ms = min(before_ms, oldest_ms + _SPANS_PER_DELETE * span.width_ms)
    expired = delete(log_samples).where(is_meant, columns.start_ms < end_ms)
    return connection.execute(expired).rowcount
