"""The periods that plots show."""

import pytest

from app.console.time_ranges import BARS_MAX, parse_range, time_ranges
from app.domain.hours import HOUR_MS
from app.domain.tallies import Span
from app.http.problems import Problem

# 2026-11-22T08:00:00Z, and a part of an hour.
PRESENT_MS = 1_795_334_400_000 + 7 * 60_000


def test_the_last_hour_is_shown_by_five_minutes_and_longer_ranges_by_hours() -> None:
    hour, day, history = time_ranges(5, PRESENT_MS)
    assert [each.words for each in (hour, day, history)] == ["1 h", "24 h", "5 d"]
    assert (hour.span, hour.bar_ms) == (Span.SETTLED, 300_000)
    assert PRESENT_MS - hour.from_ms == 62 * 60_000
    assert (day.span, day.bar_ms) == (Span.EVENT, HOUR_MS)
    assert PRESENT_MS - day.from_ms == 24 * HOUR_MS + 7 * 60_000
    assert (history.span, history.bar_ms) == (Span.EVENT, 3 * HOUR_MS)


def test_no_history_has_too_many_bars() -> None:
    for history_days in range(1, 366):
        ranges = time_ranges(history_days, PRESENT_MS)
        assert len(ranges) == 2 + (history_days > 1)
        assert [each.name for each in ranges] == ["1h", "24h", f"{history_days}d"][: len(ranges)]
        for each in ranges:
            assert each.from_ms % each.bar_ms == 0
            assert (each.to_ms - each.from_ms) / each.bar_ms < BARS_MAX + 1


def test_an_unknown_range_is_rejected_with_what_is_allowed() -> None:
    ranges = time_ranges(5, PRESENT_MS)
    assert parse_range("", ranges) == ranges[0]
    assert parse_range("5d", ranges) == ranges[2]
    with pytest.raises(Problem) as raised:
        parse_range("2h", ranges)
    (error,) = raised.value.errors
    assert (error.field, error.value, error.allowed) == ("range", "2h", "1h, 24h, 5d")
