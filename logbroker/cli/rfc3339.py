"""Times as the commands write and read them: RFC 3339 in UTC, to the millisecond."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def format_time(timestamp_ms: int) -> str:
    """A timestamp for people; one beyond the year 9999 stays a number of milliseconds."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def parse_time(text: str) -> int:
    """Milliseconds since 1970, rounded down.

    Raises:
        ValueError: it is no time, or has no offset from UTC, or lies before 1970.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment < _EPOCH:
        raise ValueError(text)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
