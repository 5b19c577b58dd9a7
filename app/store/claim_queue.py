"""The column `claimable_ms` of `replays`: the time from which a replay can be claimed.

It holds a time of the database's clock; for a replay of the archive, `ARCHIVE_SHIFT_MS` more. So
these are separate in the index of claims. A worker of the previous version, which would look for
their offsets in `delivery_log`, never reaches that time.
"""

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, and_, case, func

from app.domain.options import Source
from app.store.sql import now_ms
from app.store.tables import replays

ARCHIVE_SHIFT_MS: Final = 10**16
"""About 300,000 years."""

_SHIFT_MS: Final = case((replays.c.source == str(Source.ARCHIVE), ARCHIVE_SHIFT_MS), else_=0)


class ClaimQueue(NamedTuple):
    """Replays of one source and one data centre (empty: not yet assigned), claimed in order."""

    origin: str = ""
    source: Source = Source.LOG

    @property
    def shift_ms(self) -> int:
        """What the column adds to the time for these replays."""
        return ARCHIVE_SHIFT_MS if self.source is Source.ARCHIVE else 0

    def is_due(self) -> ColumnElement[bool]:
        """Whether a replay is in this queue and can be claimed now."""
        return and_(
            replays.c.origin == self.origin,
            replays.c.claimable_ms >= self.shift_ms,
            replays.c.claimable_ms <= now_ms() + self.shift_ms,
            replays.c.source == str(self.source),
        )


def claimable_from(time_ms: ColumnElement[int]) -> ColumnElement[int]:
    """The value of the column for a replay that can be claimed from `time_ms`."""
    return time_ms + _SHIFT_MS


def claimable_time_ms() -> ColumnElement[int]:
    """The time that the column stands for."""
    return replays.c.claimable_ms - _SHIFT_MS


def queued_since_ms() -> ColumnElement[int]:
    """Since when a replay could first be claimed: its creation, or the restore of its records."""
    return func.coalesce(replays.c.restored_ms, replays.c.created_ms)
