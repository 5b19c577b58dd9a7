"""Restores that replays of the archive await."""

from typing import Final

from app.domain.lateness import AHEAD_MS_MAX, disorder_ms
from app.domain.model import AwaitedRestore, Window
from app.domain.windows import format_time

JOB: Final = "rewind-jobs restore"


def describe_awaited(webhook_id: str, window: Window, awaits: AwaitedRestore) -> str:
    """The text for users: which restore is needed, and why the last one failed."""
    start, end = format_time(window.from_ms), format_time(window.to_ms)
    words = (
        f"a restore: an operator must run `{JOB}` to restore the records of {webhook_id} from "
        f"{start} to {end}"
    )
    return (
        words if awaits.missing is None else f"{words}; not found by the last run: {awaits.missing}"
    )


def all_arrived_by_ms(window: Window, now_ms: int, *, lateness_ms: int, retention_ms: int) -> int:
    """The time whose first record follows all events of a window, except recorded late arrivals.

    Late arrivals are recorded as long as the log keeps their times, and callers read them too. For
    older windows the records are deleted, but their events, even those of mirrors, arrived before
    the log's retention ended.
    """
    if window.to_ms > now_ms - retention_ms:
        return window.to_ms + disorder_ms(lateness_ms)
    return window.to_ms + retention_ms + AHEAD_MS_MAX
