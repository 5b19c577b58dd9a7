"""What a replay of the archive waits for: which records have to be brought back, in words."""

from typing import Final

from app.domain.lateness import AHEAD_MS_MAX, disorder_ms
from app.domain.model import AwaitedRestore, Window
from app.domain.windows import format_time

JOB: Final = "rewind-jobs restore"


def awaited_in_words(webhook_id: str, window: Window, awaits: AwaitedRestore) -> str:
    """Who has to do what, and what stands against it."""
    start, end = format_time(window.from_ms), format_time(window.to_ms)
    words = (
        f"a restore: an operator's run of `{JOB}` has to bring the records of {webhook_id} from "
        f"{start} to {end} back from what was loaded"
    )
    return words if awaits.missing is None else f"{words}; its last run lacked: {awaits.missing}"


def all_arrived_by_ms(window: Window, now_ms: int, *, lateness_ms: int, retention_ms: int) -> int:
    """The moment by whose first record all of a window had reached the log.

    Of late events there is a note as long as the log keeps their times: who asks for this also asks
    for the notes. Of older windows there are none any more, but whoever brought them, a mirror of
    another log at the latest, brought them before that.
    """
    if window.to_ms > now_ms - retention_ms:
        return window.to_ms + disorder_ms(lateness_ms)
    return window.to_ms + retention_ms + AHEAD_MS_MAX
