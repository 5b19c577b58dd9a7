"""The tables of the minute index: where partitions of `delivery_log` have records of each minute.

The process that has claimed the index of events writes them, in the transaction that stores which
records it has read. Deleting all rows of a partition is safe: replays then read to the end that the
log alone yields.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, delete, func, select

from app.domain.minute_index import (
    IndexedRange,
    IndexedWindow,
    MinuteIndexUpdate,
    TimedOffset,
)
from app.domain.model import Window
from app.domain.windows import MINUTE_MS
from app.store.event_index_tables import minute_index_entries as entries
from app.store.event_index_tables import minute_index_ranges as ranges
from app.store.sql import upsert

_RANGE_COLUMNS: Final = ("start_offset", "end_offset", "newest_offset", "newest_ms")


def read_indexed_ranges(connection: Connection, origin: str) -> dict[int, IndexedRange]:
    """The ranges of all partitions of a data centre's log."""
    columns = ranges.c
    query = select(
        columns.log_partition,
        columns.start_offset,
        columns.end_offset,
        columns.newest_offset,
        columns.newest_ms,
    ).where(columns.origin == origin)
    return {
        row.log_partition: IndexedRange(
            row.start_offset,
            row.end_offset,
            None if row.newest_offset is None else TimedOffset(row.newest_offset, row.newest_ms),
        )
        for row in connection.execute(query)
    }


def store_minutes(
    connection: Connection, origin: str, updates: Mapping[int, MinuteIndexUpdate]
) -> None:
    """Store updates by partition, and delete the entries of deleted records."""
    for partition, update in updates.items():
        _delete_entries(connection, origin, partition, update)
    new_entries = [
        {
            "origin": origin,
            "log_partition": partition,
            "minute_ms": minute_ms,
            "end_offset": end,
        }
        for partition, update in sorted(updates.items())
        for minute_ms, end in sorted(update.ends.items())
    ]
    if new_entries:
        new_end = upsert(connection, entries, lambda new: {"end_offset": new["end_offset"]})
        connection.execute(new_end, new_entries)
    new_ranges = [
        _to_row(origin, partition, update.indexed) for partition, update in sorted(updates.items())
    ]
    if new_ranges:
        statement = upsert(
            connection, ranges, lambda new: {name: new[name] for name in _RANGE_COLUMNS}
        )
        connection.execute(statement, new_ranges)


def _delete_entries(
    connection: Connection, origin: str, partition: int, update: MinuteIndexUpdate
) -> None:
    columns = entries.c
    expired = delete(entries).where(columns.origin == origin, columns.log_partition == partition)
    if not update.is_restart:
        expired = expired.where(columns.end_offset <= update.indexed.start)
    connection.execute(expired)


def _to_row(origin: str, partition: int, indexed: IndexedRange) -> dict[str, object]:
    newest = indexed.newest
    return {
        "origin": origin,
        "log_partition": partition,
        "start_offset": indexed.start,
        "end_offset": indexed.end,
        "newest_offset": None if newest is None else newest.offset,
        "newest_ms": None if newest is None else newest.time_ms,
    }


def indexed_window(
    connection: Connection, partition: int, window: Window, *, origin: str
) -> IndexedWindow | None:
    """What the minute index has of a window; None if it has no records of the partition."""
    last_end = (
        select(func.max(entries.c.end_offset))
        .where(entries.c.origin == origin, entries.c.log_partition == partition)
        .where(entries.c.minute_ms > window.from_ms - MINUTE_MS)
        .where(entries.c.minute_ms < window.to_ms)
        .scalar_subquery()
    )
    columns = ranges.c
    query = (
        select(columns.start_offset, columns.newest_offset, columns.newest_ms, last_end)
        .where(columns.origin == origin, columns.log_partition == partition)
        .where(columns.newest_offset.is_not(None))
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    start, newest_offset, newest_ms, end = row
    return IndexedWindow(start, TimedOffset(newest_offset, newest_ms), end or 0)
