"""The column that says from when on a replay may be claimed.

It holds a time of the database's clock; of replays of the archive, one that is `ARCHIVE_SHIFT_MS`
later. So those stand apart in the index of claims, and for a worker of the version before, which
would look for their offsets in `delivery_log`, their time never comes.
"""

from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, and_, case, func

from app.domain.options import Source
from app.store.clock import now_ms
from app.store.tables import replays

ARCHIVE_SHIFT_MS: Final = 10**16
"""Three hundred thousand years."""

_SHIFT_MS: Final = case((replays.c.source == str(Source.ARCHIVE), ARCHIVE_SHIFT_MS), else_=0)


class Queue(NamedTuple):
    """Replays that are claimed in one order: of one data centre, empty for nobody's, and source."""

    origin: str = ""
    source: Source = Source.LOG

    @property
    def shift_ms(self) -> int:
        """How much later than its time the column says for one of these."""
        return ARCHIVE_SHIFT_MS if self.source is Source.ARCHIVE else 0

    def is_due(self) -> ColumnElement[bool]:
        """Whether a replay is of this queue, and may be claimed now."""
        return and_(
            replays.c.origin == self.origin,
            replays.c.claimable_ms >= self.shift_ms,
            replays.c.claimable_ms <= now_ms() + self.shift_ms,
            replays.c.source == str(self.source),
        )


def claimable_from(time_ms: ColumnElement[int]) -> ColumnElement[int]:
    """What the column holds of a replay that may be claimed from `time_ms` on."""
    return time_ms + _SHIFT_MS


def claimable_time_ms() -> ColumnElement[int]:
    """The time that the column stands for."""
    return replays.c.claimable_ms - _SHIFT_MS


def waits_since_ms() -> ColumnElement[int]:
    """Since when a replay has waited for a worker, but for what came in between."""
    return func.coalesce(replays.c.restored_ms, replays.c.created_ms)
