"""Counts the events that arrived too late for their windows. Pure.

Spark drops events behind the watermark, but its metric counts aggregated rows and not events. So
the ledger compares the events seen of each window with its count when it was closed. Events that
were seen but not counted were late.

Windows close in the order of their ends. When one is written, all that begin earlier are closed,
including those without a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class WindowLedger:
    """What a query has seen so far; a window's key is its start in ms since 1970."""

    seen: int = 0
    """Events of all batches."""

    late: int = 0
    """Those of them that are in no window; windows that are not closed do not count."""

    closed_until_ms: int | None = None
    """The start of the last window that was written."""

    open: Mapping[int, int] = field(default_factory=dict)
    """Events seen of each window that begins later."""

    def after(self, seen: Mapping[int, int], written: Mapping[int, int]) -> Self:
        """The ledger after a batch with these events seen and these counts written, by window."""
        total = dict(self.open)
        for window_ms, events in seen.items():
            total[window_ms] = total.get(window_ms, 0) + events
        closed_ms = max([*written, *self._closed()], default=None)
        closed = (
            0
            if closed_ms is None
            else sum(events for window_ms, events in total.items() if window_ms <= closed_ms)
        )
        return type(self)(
            seen=self.seen + sum(seen.values()),
            late=self.late + closed - sum(written.values()),
            closed_until_ms=closed_ms,
            open={
                window_ms: events
                for window_ms, events in total.items()
                if closed_ms is None or window_ms > closed_ms
            },
        )

    def _closed(self) -> list[int]:
        return [] if self.closed_until_ms is None else [self.closed_until_ms]

    def as_json(self) -> dict[str, Any]:
        """The members in the position of a table."""
        return {
            "seen": self.seen,
            "late": self.late,
            "closedUntilMs": self.closed_until_ms,
            "open": {str(window_ms): events for window_ms, events in sorted(self.open.items())},
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """The ledger that `as_json` wrote."""
        return cls(
            members["seen"],
            members["late"],
            members["closedUntilMs"],
            {int(window_ms): events for window_ms, events in members["open"].items()},
        )
