"""Days, UTC, as jobs are asked for them."""

from datetime import UTC, date, datetime, timedelta
from typing import Final

DAY_MS: Final = 86_400_000


def yesterday(now: datetime) -> date:
    """The last day that is over."""
    return (now - timedelta(days=1)).date()


def bounds_ms(day: date) -> tuple[int, int]:
    """When a day begins and when the next one does, in ms since 1970."""
    start_ms = round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1_000)
    return start_ms, start_ms + DAY_MS
