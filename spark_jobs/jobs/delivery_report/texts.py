"""Numbers as the page says them. Pure."""

from typing import Final

from spark_jobs.jobs.delivery_report.figures import DayReport

NOTHING: Final = "–"  # noqa: RUF001  a dash of the width that tables have
"""What stands in a cell that has no number."""

_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_HUNDRED: Final = 100


def delay_text(delay_ms: int | None) -> str:
    """A stretch of time with about three digits: `850 ms`, `4.2 s`, `12 min`, `3.5 h`."""
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
    """A count with commas."""
    return f"{count:,}"


def share_text(part: int, whole: int) -> str:
    """A share in per cent; never 100 % where something is missing, nor 0 % where something is."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    if part not in (0, whole):
        share = min(max(share, 0.01), 99.99)
    return f"{share:.2f} %"


def events_alt(report: DayReport) -> str:
    """What the plot of events shows, for who cannot see it."""
    if not report.hours:
        return "Events by hour: none."
    busiest = max(report.hours, key=lambda hour: report.hours[hour].counts["owed"])
    worst = max(report.hours, key=lambda hour: report.hours[hour].undelivered)
    text = (
        f"Events by hour, by what became of them. Most were owed at {busiest:02}:00: "
        f"{count_text(report.hours[busiest].counts['owed'])}."
    )
    missing = report.hours[worst].undelivered
    if not missing:
        return f"{text} All were delivered live."
    return f"{text} Most were not delivered live at {worst:02}:00: {count_text(missing)}."


def delays_alt(report: DayReport) -> str:
    """What the plot of delays shows, for who cannot see it."""
    delays = {hour: each.delay_p95_ms for hour, each in report.hours.items()}
    slow = {hour: delay_ms for hour, delay_ms in delays.items() if delay_ms is not None}
    if not slow:
        return "Delays by hour: nothing was delivered live."
    slowest = max(slow, key=lambda hour: slow[hour])
    return (
        "Median and 95th percentile of the delay by hour. Slowest at "
        f"{slowest:02}:00: 95 % within {delay_text(slow[slowest])}."
    )
