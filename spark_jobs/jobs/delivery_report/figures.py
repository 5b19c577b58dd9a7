"""The figures of a day that a page tells. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Self

OUTCOMES: Final = ("delivered", "failed", "left", "disabled", "unsettled")
"""What is owed is one of these."""

COUNTS: Final = (
    *("owed", *OUTCOMES, "duplicates"),
    *("replayed", "replayFailed", "replayDuplicates"),
)
"""The columns of `DELIVERY_HOURS` that add up."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The counts of some webhooks and hours, and the delays of what was delivered live."""

    counts: Mapping[str, int]
    """By the names in `COUNTS`."""

    delay_p50_ms: int | None
    """None where nothing was delivered."""

    delay_p95_ms: int | None

    @classmethod
    def of(cls, sums: Any, delays: Any) -> Self:
        """The figures in two rows of Spark's; `delays` may be None, and sums null."""
        return cls(
            {name: sums[name] or 0 for name in COUNTS},
            None if delays is None else delays["delayP50Ms"],
            None if delays is None else delays["delayP95Ms"],
        )

    @property
    def undelivered(self) -> int:
        """What was owed and no live delivery brought."""
        return self.counts["owed"] - self.counts["delivered"]

    def as_json(self) -> dict[str, int | None]:
        """All of them by the names of their columns."""
        delays = {"delayP50Ms": self.delay_p50_ms, "delayP95Ms": self.delay_p95_ms}
        return {**self.counts, **delays}


@dataclass(frozen=True, slots=True)
class DayReport:
    """What became of the events of a day, UTC."""

    day: date
    webhooks: int
    """How many of them had events, or replays of some."""

    total: Figures
    hours: Mapping[int, Figures]
    """By hour, in order; hours without any are not in it."""

    worst: Mapping[str, Figures]
    """Webhooks by what was not delivered live, the most first."""
