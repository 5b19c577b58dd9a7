"""Parsing and formatting of times, and validation of replay windows."""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from app.domain.model import Window

MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS

TIME_ALLOWED: Final = "RFC 3339, such as 2026-11-21T08:00:00Z, or yyyymmddhhmm in UTC"

# Without a zone: all are in UTC, and calculate in a third of the time.
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_MILLISECOND: Final = timedelta(milliseconds=1)
_EARLIEST_MS: Final = (datetime.min - _EPOCH) // _MILLISECOND  # noqa: DTZ901
_LATEST_MS: Final = (datetime.max - _EPOCH) // _MILLISECOND  # noqa: DTZ901
_RFC_3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]((?:[01][0-9]|2[0-3]):[0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_TWELVE_DIGITS: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})")


class TimeUnreadable(ValueError):
    """A text is not a time in the years 1 to 9999."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not a time; allowed: {TIME_ALLOWED}")
        self.allowed = TIME_ALLOWED


class WindowRefused(ValueError):
    """A window that cannot be replayed: the field at fault, its value, and what is allowed."""

    def __init__(self, field: str, value: str, reason: str, allowed: str) -> None:
        super().__init__(f"{field} is {value}: {reason}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.reason = reason
        self.allowed = allowed


def parse_time(text: str) -> int:
    """Parse a time to milliseconds since 1970 UTC; finer fractions are cut off.

    Two formats are accepted: RFC 3339 with any offset, and `yyyymmddhhmm` in UTC. A leap second is
    the first second of the next day, as POSIX clocks have it.

    Raises:
        TimeUnreadable: the text has neither format, or the time does not exist.

    Source: RFC 3339 section 5.6; the minute format is that of Twitter's replay API.
    """
    try:
        if match := _RFC_3339.fullmatch(text):
            return _ms_of_rfc_3339(match)
        if match := _TWELVE_DIGITS.fullmatch(text):
            return _ms_since_epoch(datetime(*map(int, match.groups())))  # type: ignore[arg-type]  # noqa: DTZ001  # five numbers
    except ValueError:
        pass
    raise TimeUnreadable(text)


def format_time(time_ms: int) -> str:
    """Format a time as RFC 3339 in UTC with milliseconds: `2026-11-21T08:00:00.000Z`.

    A time outside the years 1 to 9999 is replaced by the nearest one inside: foreign records may
    have any timestamp, and estimates may lie as far ahead.
    """
    seconds, milliseconds = divmod(min(max(time_ms, _EARLIEST_MS), _LATEST_MS), 1_000)
    return f"{_format_seconds(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=1_024)
def _format_seconds(time_s: int) -> str:
    """Format a time; most times of a process are of the same few seconds."""
    return (_EPOCH + timedelta(seconds=time_s)).isoformat()


def check_window(window: Window, now_ms: int, history_ms: int) -> None:
    """Check that a window is a non-empty span of the last `history_ms`.

    Whether the log still has its records is checked elsewhere.

    Raises:
        WindowRefused: the window starts before that history, or see `check_span`.
    """
    check_span(window, now_ms, history_ms)
    if window.from_ms < now_ms - history_ms:
        raise not_retained(window.from_ms, now_ms - history_ms)


def check_span(window: Window, now_ms: int, longest_ms: int) -> None:
    """Check that a window is a non-empty span of the past, of up to `longest_ms`.

    Raises:
        WindowRefused: the window is empty or reversed, ends in the future, or is too long.
    """
    start, end = format_time(window.from_ms), format_time(window.to_ms)
    if window.to_ms <= window.from_ms:
        reason = "the window is empty" if start == end else "the window is reversed"
        raise WindowRefused("to", end, reason, f"a time after from, {start}")
    if window.to_ms > now_ms:
        raise WindowRefused(
            "to",
            end,
            "the window ends in the future",
            f"at most the present, {format_time(now_ms)}",
        )
    if window.to_ms - window.from_ms > longest_ms:
        latest = format_time(window.from_ms + longest_ms)
        days = f"{longest_ms / DAY_MS:g} days"
        raise WindowRefused(
            "to", end, f"the window is longer than {days}", f"at most {days} after from, {latest}"
        )


def not_retained(from_ms: int, available_from_ms: int) -> WindowRefused:
    """The error for a window that starts before the first available time."""
    return WindowRefused(
        "from",
        format_time(from_ms),
        "the window starts before the retained history",
        f"at least {format_time(available_from_ms)}",
    )


def _ms_of_rfc_3339(match: re.Match[str]) -> int:
    date, minute, second, fraction, sign, offset_hours, offset_minutes = match.groups()
    is_leap_second = second == "60"
    text = f"{date}T{minute}:{'59' if is_leap_second else second}"
    time_ms = _ms_since_epoch(datetime.fromisoformat(text))
    if sign is not None:
        time_ms -= _offset_ms(sign, offset_hours, offset_minutes)
    if is_leap_second:
        time_ms = _second_after_a_leap_second(time_ms)
    if fraction is not None:
        time_ms += int(fraction[:3].ljust(3, "0"))
    if not _EARLIEST_MS <= time_ms <= _LATEST_MS:
        raise ValueError(time_ms)
    return time_ms


def _second_after_a_leap_second(time_ms: int) -> int:
    midnight_ms = time_ms + 1_000
    if midnight_ms % DAY_MS:
        raise ValueError(time_ms)
    return midnight_ms


def _offset_ms(sign: str, hours: str, minutes: str) -> int:
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError(hours)
    offset_ms = (int(hours) * 60 + int(minutes)) * MINUTE_MS
    return -offset_ms if sign == "-" else offset_ms


def _ms_since_epoch(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
