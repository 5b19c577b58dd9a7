"""Hours of event time, UTC: numbered since 1970, written as `2026-11-21T08`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from app.domain.windows import MINUTE_MS, format_time, parse_time

HOUR_MS: Final = 60 * MINUTE_MS

Tally = Mapping[int, int]
"""How many there are, by the hour of their time."""

_LETTERS: Final = len("2026-11-21T08")


def tally(times_ms: Sequence[int]) -> Tally:
    """How many of the times lie in each hour."""
    if not times_ms:
        return {}
    # This is asked of every event. A request mostly brings one, or many of the same hour.
    if len(times_ms) == 1:
        return {times_ms[0] // HOUR_MS: 1}
    first, last = min(times_ms) // HOUR_MS, max(times_ms) // HOUR_MS
    if first == last:
        return {first: len(times_ms)}
    return Counter(time_ms // HOUR_MS for time_ms in times_ms)


def hour_text(hour: int) -> str:
    """The hour of this number, as text."""
    return format_time(hour * HOUR_MS)[:_LETTERS]


def hour_of(text: str) -> int:
    """The number of the hour that is written so.

    Raises:
        TimeUnreadable: the text is no hour.
    """
    return parse_time(f"{text}:00:00Z") // HOUR_MS
