import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.model import Window
from app.domain.windows import (
    DAY_MS,
    MINUTE_MS,
    TimeUnreadable,
    WindowRefused,
    check_window,
    format_time,
    parse_time,
)

# `date -u -d 2026-11-21T08:00:00Z +%s000` of GNU coreutils.
NOW_MS = 1_795_248_000_000
HISTORY_MS = 5 * DAY_MS


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T08:00:00Z",
        "2026-11-21t08:00:00z",
        "2026-11-21 08:00:00Z",
        "2026-11-21T08:00:00.000999999Z",
        "2026-11-21T10:30:00+02:30",
        "2026-11-20T23:00:00-09:00",
        "2026-11-21T08:00:00-00:00",
        "202611210800",
    ],
)
def test_one_time_is_parsed_from_every_format(text: str) -> None:
    assert parse_time(text) == NOW_MS


def test_a_fraction_counts_to_the_millisecond() -> None:
    assert parse_time("2026-11-21T08:00:00.5Z") == NOW_MS + 500
    assert parse_time("1969-12-31T23:59:59.999Z") == -1


def test_a_leap_second_is_the_first_second_of_the_next_day() -> None:
    assert parse_time("2016-12-31T23:59:60.25Z") == parse_time("2017-01-01T00:00:00.25Z")
    assert parse_time("2017-01-01T00:59:60+01:00") == parse_time("2017-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-21",
        "2026-11-21T08:00:00",
        "2026-11-21T08:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T08:00:60Z",
        "2016-12-31T23:59:61Z",
        "2026-11-21T08:00:00+24:00",
        "2026-11-21T08:00:00+01:60",
        "2026-11-21T08:00:00.Z",
        "2026-11-21T08:00:00Z\n",
        "20261121080",
        "2026112108000",
        "202613210800",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:60Z",
        "٢٠٢٦١١٢١٠٨٠٠",
    ],
)
def test_an_invalid_time_is_rejected_with_the_allowed_formats(text: str) -> None:
    with pytest.raises(TimeUnreadable, match=r"RFC 3339.*yyyymmddhhmm") as caught:
        parse_time(text)
    assert repr(text) in str(caught.value)


def test_times_are_formatted_in_utc_with_milliseconds() -> None:
    assert format_time(NOW_MS + 7) == "2026-11-21T08:00:00.007Z"


@given(st.integers(parse_time("0001-01-01T00:00:00Z"), parse_time("9999-12-31T23:59:59.999Z")))
def test_a_formatted_time_is_parsed_to_the_same_time(time_ms: int) -> None:
    assert parse_time(format_time(time_ms)) == time_ms


@given(st.text(alphabet="0123456789-+:.TtZz ", max_size=30))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        time_ms = parse_time(text)
    except TimeUnreadable:
        return
    assert parse_time(format_time(time_ms)) == time_ms


def test_the_longest_window_is_the_whole_history() -> None:
    check_window(Window(NOW_MS - HISTORY_MS, NOW_MS), NOW_MS, HISTORY_MS)


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "field", "reason", "allowed"),
    [
        (-MINUTE_MS, -MINUTE_MS, "to", "empty", "after from, 2026-11-21T07:59:00.000Z"),
        (-MINUTE_MS, -2 * MINUTE_MS, "to", "reversed", "after from, 2026-11-21T07:59:00.000Z"),
        (-MINUTE_MS, 1, "to", "future", "at most the present, 2026-11-21T08:00:00.000Z"),
        (-5 * DAY_MS - 1, 0, "to", "longer than 5 days", "2026-11-21T07:59:59.999Z"),
        (-5 * DAY_MS - 1, -DAY_MS, "from", "retained", "at least 2026-11-16T08:00:00.000Z"),
    ],
)
def test_an_invalid_window_is_rejected(
    from_ms: int, to_ms: int, field: str, reason: str, allowed: str
) -> None:
    window = Window(NOW_MS + from_ms, NOW_MS + to_ms)
    with pytest.raises(WindowRefused) as caught:
        check_window(window, NOW_MS, HISTORY_MS)
    assert caught.value.field == field
    assert caught.value.value == format_time(window.from_ms if field == "from" else window.to_ms)
    assert reason in caught.value.reason
    assert allowed in caught.value.allowed


def test_a_time_outside_the_calendar_is_formatted_as_the_nearest_one() -> None:
    assert format_time(2**62) == "9999-12-31T23:59:59.999Z"
    assert format_time(-(2**62)) == "0001-01-01T00:00:00.000Z"
    assert parse_time(format_time(2**62)) == 253_402_300_799_999
