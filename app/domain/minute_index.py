"""The minute index: where `delivery_log` has the last record of each minute of event time.

Record times need not grow with offsets, so the log alone cannot say where the records of a window
end: a replay reads on while an event on time may follow. The minute index says it, for the offsets
that a reader has passed in order. An entry is a minute and the offset after its last record.

The index is of one log. `newest` proves that: if the first record with at least its time is still
at its offset, the log was neither recreated nor truncated below it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.domain.windows import MINUTE_MS


class TimedOffset(NamedTuple):
    """The offset and the time of a record."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class IndexedRange:
    """The offsets `[start, end)` of a partition whose records have entries.

    `newest` is the first of the records with the largest time; None without records.
    """

    start: int
    end: int
    newest: TimedOffset | None = None


@dataclass(slots=True)
class MinuteIndexUpdate:
    """What the next records of a partition add.

    `ends` are the entries: by start of the minute, the offset after its last record. Stored entries
    of offsets outside `indexed` are of no use.
    """

    indexed: IndexedRange
    ends: dict[int, int] = field(default_factory=dict)
    is_restart: bool = False
    """Whether the stored entries are not of the offsets of `indexed`."""

    def add(self, records: Iterable[TimedOffset], end: int) -> None:
        """Add the records up to the offset `end`, in the order of their offsets.

        No window has times before 1970, and no lookup finds them.
        """
        newest = self.indexed.newest
        for record in records:
            if record.time_ms < 0:
                continue
            self.ends[record.time_ms // MINUTE_MS * MINUTE_MS] = record.offset + 1
            if newest is None or record.time_ms > newest.time_ms:
                newest = record
        self.indexed = replace(self.indexed, end=end, newest=newest)

    def restart(self, start: int) -> None:
        """Start again at an offset: what is below it is unknown."""
        self.indexed, self.ends, self.is_restart = IndexedRange(start, start), {}, True


def next_update(
    stored: IndexedRange | None,
    found: TimedOffset | None,
    position: int | None,
    *,
    start: int,
    low: int,
) -> MinuteIndexUpdate:
    """The update of a partition that is read from `start` on, without records yet.

    It continues the stored range if that is of the same log, and nothing was read without it.
    `found` is the first record of the log with at least the time of the range's newest, and
    `position` the offset below which records were read. The log has deleted what is below `low`.
    """
    if stored is None or stored.newest is None or stored.newest != found:
        return MinuteIndexUpdate(IndexedRange(start, start), is_restart=True)
    if stored.end != position or start < position:
        return MinuteIndexUpdate(IndexedRange(start, start), is_restart=True)
    return MinuteIndexUpdate(replace(stored, start=max(stored.start, low), end=start))


@dataclass(frozen=True, slots=True)
class IndexedWindow:
    """What the minute index of a partition has of a window.

    Of the records in `[start, newest.offset]`, those of the window lie below `end`; 0 if there are
    none.
    """

    start: int
    newest: TimedOffset
    end: int

    def end_from(self, start: int, late_end: int) -> int:
        """The offset below which the log has all events of the window from `start` on.

        `late_end` is the offset below which all late events of the window lie. A record on time
        that follows `newest` must not be able to belong to the window.
        """
        end = self.gap_from(start).start
        return max(end, late_end) if late_end > self.newest.offset + 1 else end

    def gap_from(self, start: int) -> range:
        """The offsets above `start` after the window's last indexed event, up to the newest."""
        end = max(start, self.end)
        if start < self.start:
            end = max(end, self.start)
        return range(end, max(end, self.newest.offset + 1))


class WindowNotes(NamedTuple):
    """What the database has of a window in one partition of the log.

    Late events of the window lie below `late_end`; 0 if there are none.
    """

    late_end: int = 0
    indexed: IndexedWindow | None = None
