"""The figures of a day's report, and their text form. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Self

OUTCOMES: Final = ("delivered", "failed", "left", "disabled", "unsettled")
"""Every event of the report has one of these."""

COUNTS: Final = (
    *("owed", *OUTCOMES, "duplicates"),
    *("replayed", "replayFailed", "replayDuplicates"),
)
"""The columns of `DELIVERY_HOURS` that are sums."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The counts of some webhooks and hours, and the percentiles of live delivery delays."""

    counts: Mapping[str, int]
    """By the names in `COUNTS`."""

    delay_p50_ms: int | None
    """None if nothing was delivered."""

    delay_p95_ms: int | None

    @classmethod
    def from_rows(cls, sums: Any, delays: Any) -> Self:
        """The figures of two Spark rows; `delays` may be None, and sums may be null."""
        return cls(
            {name: sums[name] or 0 for name in COUNTS},
            None if delays is None else delays["delayP50Ms"],
            None if delays is None else delays["delayP95Ms"],
        )

    @property
    def undelivered(self) -> int:
        """The number of events that were not delivered live."""
        return self.counts["owed"] - self.counts["delivered"]

    def as_json(self) -> dict[str, int | None]:
        """All figures by their column names."""
        delays = {"delayP50Ms": self.delay_p50_ms, "delayP95Ms": self.delay_p95_ms}
        return {**self.counts, **delays}


@dataclass(frozen=True, slots=True)
class DayReport:
    """The figures of a day, UTC."""

    day: date
    webhooks: int
    """The number of webhooks with events or replays."""

    total: Figures
    hours: Mapping[int, Figures]
    """By hour, in order; only hours with events or replays."""

    worst: Mapping[str, Figures]
    """Webhooks with undelivered events, the most first."""


NOTHING: Final = "–"  # noqa: RUF001  a dash of the width that tables have
"""The text of a missing number."""

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_HUNDRED: Final = 100


def delay_text(delay_ms: int | None) -> str:
    """A delay with about three digits: `850 ms`, `4.2 s`, `12 min`, `3.5 h`."""
    if delay_ms is None:
        return NOTHING
    size_ms = abs(delay_ms)
    if size_ms < _SECOND_MS:
        return f"{delay_ms} ms"
    if size_ms < _MINUTE_MS:
        return f"{delay_ms / _SECOND_MS:.3g} s"
    if size_ms < _HOUR_MS:
        return f"{delay_ms / _MINUTE_MS:.3g} min"
    hours = delay_ms / _HOUR_MS
    return f"{hours:.3g} h" if abs(hours) < _HUNDRED else f"{hours:,.0f} h"


def count_text(count: int) -> str:
    """A count with thousands separators."""
    return f"{count:,}"


def share_text(part: int, whole: int) -> str:
    """A share in per cent; 100 % and 0 % only if exact."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    if part not in (0, whole):
        share = min(max(share, 0.01), 99.99)
    return f"{share:.2f} %"


def events_alt(report: DayReport) -> str:
    """The alternative text of the plot of events."""
    if not report.hours:
        return "No events."
    busiest = max(report.hours, key=lambda hour: report.hours[hour].counts["owed"])
    worst = max(report.hours, key=lambda hour: report.hours[hour].undelivered)
    text = (
        f"Events by hour and outcome. Most events: {busiest:02}:00 with "
        f"{count_text(report.hours[busiest].counts['owed'])}."
    )
    missing = report.hours[worst].undelivered
    if not missing:
        return f"{text} All were delivered live."
    return f"{text} Most undelivered: {worst:02}:00 with {count_text(missing)}."


def delays_alt(report: DayReport) -> str:
    """The alternative text of the plot of delays."""
    delays = {hour: each.delay_p95_ms for hour, each in report.hours.items()}
    slow = {hour: delay_ms for hour, delay_ms in delays.items() if delay_ms is not None}
    if not slow:
        return "No delays: nothing was delivered live."
    slowest = max(slow, key=lambda hour: slow[hour])
    return (
        "p50 and p95 of the delay by hour. Slowest: "
        f"{slowest:02}:00 with a p95 of {delay_text(slow[slowest])}."
    )
