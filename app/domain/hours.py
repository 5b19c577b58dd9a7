"""Hours of event time, UTC: numbers since 1970, and text such as `2026-11-21T08`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from app.domain.windows import MINUTE_MS, format_time

HOUR_MS: Final = 60 * MINUTE_MS

HourCounts = Mapping[int, int]
"""Counts by number of the hour."""

_HOUR_CHARS: Final = len("2026-11-21T08")


def count_by_hour(times_ms: Sequence[int]) -> HourCounts:
    """The number of times in each hour."""
    if not times_ms:
        return {}
    # Called for every batch, which mostly has one event, or events of one hour.
    if len(times_ms) == 1:
        return {times_ms[0] // HOUR_MS: 1}
    first, last = min(times_ms) // HOUR_MS, max(times_ms) // HOUR_MS
    if first == last:
        return {first: len(times_ms)}
    return Counter(time_ms // HOUR_MS for time_ms in times_ms)


def format_hour(hour: int) -> str:
    """The text of an hour."""
    return format_time(hour * HOUR_MS)[:_HOUR_CHARS]
