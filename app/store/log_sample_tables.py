"""The tables of samples of the log; `tables` has the others."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, String, Table

from app.setting_checks import ORIGIN_CHARS_MAX
from app.store.tables import TABLE_OPTIONS, metadata

NAME_CHARS_MAX: Final = 255
"""Topics have shorter names. A group with a longer id is not sampled."""

log_sample_states: Final = Table(
    "log_sample_states",
    metadata,
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    # The last minute that a process has claimed.
    Column("minute_ms", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

log_samples: Final = Table(
    "log_samples",
    metadata,
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("name", String(NAME_CHARS_MAX), primary_key=True),
    Column("span", String(16), primary_key=True),
    Column("start_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("value", BigInteger, nullable=False),
    Column("bytes", BigInteger),
    # For the deletion of old ones.
    Index(None, "origin", "span", "start_ms"),
    **TABLE_OPTIONS,
)
