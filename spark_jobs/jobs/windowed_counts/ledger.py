"""How many events came too late for their windows: pure.

Spark drops what comes behind the watermark, and tells of it only after it has added up what came of
one type and window in one batch. So this is told from both ends: what was seen of each window, and
what its count was when it was closed. What was seen and not counted was late.

Windows close in the order of their ends: when one is written, all that begin before it are closed,
also those that had nothing to write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class WindowLedger:
    """What a query has seen so far; windows are named by where they begin, in ms since 1970."""

    seen: int = 0
    """Events of all batches."""

    late: int = 0
    """Those of them that are in no window: as far as windows are closed that begin later."""

    closed_until_ms: int | None = None
    """Where the last window begins that was written."""

    open: Mapping[int, int] = field(default_factory=dict)
    """Events seen of each window that begins behind that."""

    def after(self, seen: Mapping[int, int], written: Mapping[int, int]) -> Self:
        """The ledger after a batch: events seen of each window, and counts that were written."""
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
        """As a position of a table holds it."""
        return {
            "seen": self.seen,
            "late": self.late,
            "closedUntilMs": self.closed_until_ms,
            "open": {str(window_ms): events for window_ms, events in sorted(self.open.items())},
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """What `as_json` made."""
        return cls(
            members["seen"],
            members["late"],
            members["closedUntilMs"],
            {int(window_ms): events for window_ms, events in members["open"].items()},
        )
