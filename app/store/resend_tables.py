"""The table of resends; `tables` has the others."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from app.setting_checks import ORIGIN_CHARS_MAX
from app.store.tables import ID_CHARS, NAME_CHARS, TABLE_OPTIONS, metadata

resends: Final = Table(
    "resends",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    Column("webhook_id", String(ID_CHARS), nullable=False),
    Column("origin", String(ORIGIN_CHARS_MAX), nullable=False),
    Column("log_partition", Integer, nullable=False),
    Column("record_offset", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False),
    # A `DeliveryStatus`.
    Column("status", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    # When a worker may claim it; NULL once it has a result.
    Column("due_ms", BigInteger),
    Column("claims", Integer, nullable=False),
    Column("worker", String(NAME_CHARS)),
    Column("finished_ms", BigInteger),
    Column("duration_us", BigInteger),
    Column("response_status", Integer),
    Column("reason", Text),
    Column("response", Text),
    # Of scheduled retries; NULL if it was requested.
    Column("retry_number", Integer),
    Column("event_ms", BigInteger),
    Column("event_type", Text),
    # Those of the event before this one; NULL also in retries of a version without this column.
    Column("attempts", Integer),
    # Offsets of the event's copies in its partition, separated by commas; NULL without any.
    Column("copies", Text),
    # For claims, which look for the webhooks that wait.
    Index(None, "origin", "status", "webhook_id", "due_ms"),
    # Most scheduled retries are not due: workers look every second whether one is.
    Index(None, "origin", "due_ms"),
    Index(None, "webhook_id", "log_partition", "record_offset"),
    # For lists of deliveries: the pending resends, and the latest successful ones.
    Index(None, "webhook_id", "status", "created_ms"),
    Index(None, "created_ms"),
    **TABLE_OPTIONS,
)
