"""The tables of the index of events and of the minute index; `tables` has the others."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, String, Table, Text
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from app.setting_checks import ORIGIN_CHARS_MAX
from app.store.tables import TABLE_OPTIONS, metadata

event_index_states: Final = Table(
    "event_index_states",
    metadata,
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    # The number of claims; a change names the last one.
    Column("epoch", BigInteger, nullable=False),
    Column("claimed_until_ms", BigInteger, nullable=False),
    # JSON: topic, partition and the offset below which records are indexed. There may be thousands.
    Column("positions", Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"), nullable=False),
    **TABLE_OPTIONS,
)

event_index_chunks: Final = Table(
    "event_index_chunks",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("origin", String(ORIGIN_CHARS_MAX), nullable=False),
    Column("entry_count", Integer, nullable=False),
    # When its last entry was added.
    Column("indexed_ms", BigInteger, nullable=False),
    Index(None, "origin", "id"),
    **TABLE_OPTIONS,
)

event_index_blocks: Final = Table(
    "event_index_blocks",
    metadata,
    # Blocks with the same number are next to each other: a look-up reads a few ranges.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("chunk_id", BigInteger, primary_key=True, autoincrement=False),
    Column("entries", LargeBinary, nullable=False),
    Index(None, "chunk_id"),
    **TABLE_OPTIONS,
)

minute_index_ranges: Final = Table(
    "minute_index_ranges",
    metadata,
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    # The records in `[start_offset, end_offset)` have entries.
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    # The first of the records with the largest time.
    Column("newest_offset", BigInteger),
    Column("newest_ms", BigInteger),
    **TABLE_OPTIONS,
)

minute_index_entries: Final = Table(
    "minute_index_entries",
    metadata,
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    Column("log_partition", Integer, primary_key=True, autoincrement=False),
    # The start of the minute.
    Column("minute_ms", BigInteger, primary_key=True, autoincrement=False),
    # The offset after its last record.
    Column("end_offset", BigInteger, nullable=False),
    # Entries of deleted records are found by it.
    Index(None, "origin", "log_partition", "end_offset"),
    **TABLE_OPTIONS,
)
