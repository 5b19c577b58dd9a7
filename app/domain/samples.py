"""Samples of a replay's progress, from which its rate over time is plotted."""

from dataclasses import dataclass
from typing import Final

from app.domain.model import Counts

GAP_MS_MIN: Final = 1_000
"""Checkpoints are no more frequent."""

SAMPLES_PER_SPAN: Final = 60
"""The gap is at least the time since the start divided by this number: a replay of a minute has
sixty samples, one of a day about five hundred."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A replay's checkpoint and its counts at a point in time."""

    at_ms: int
    checkpoint: int
    counts: Counts


def is_due(last_ms: int | None, started_ms: int, now_ms: int) -> bool:
    """Whether a sample is due; `last_ms` is None before the first."""
    if last_ms is None:
        return True
    return now_ms - last_ms >= max(GAP_MS_MIN, (now_ms - started_ms) // SAMPLES_PER_SPAN)


class SampleSchedule:
    """When a worker requests a sample from the store; times in milliseconds of any clock."""

    def __init__(self, age_ms: int, now_ms: int) -> None:
        """Start with a replay that is claimed now, `age_ms` after its start."""
        self._started_ms = now_ms - age_ms
        # The store takes a sample when delivery begins.
        self._last_ms = now_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether a sample is due; if so, the next one is due a gap later."""
        if not is_due(self._last_ms, self._started_ms, now_ms):
            return False
        self._last_ms = now_ms
        return True
