"""How far a replay was at some moments, so that its pace over time can be drawn."""

from dataclasses import dataclass
from typing import Final

from app.domain.model import Counts

GAP_MS_MIN: Final = 1_000
"""Checkpoints come no faster."""

SAMPLES_PER_SPAN: Final = 60
"""A gap is no shorter than this part of the time since the start: a replay of a minute has sixty
samples, one of a day about five hundred."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a replay's checkpoint was at a moment, and what `counts` counted below it."""

    at_ms: int
    checkpoint: int
    counts: Counts


def is_due(last_ms: int | None, started_ms: int, now_ms: int) -> bool:
    """Whether it is time for a sample; `last_ms` is None before the first."""
    if last_ms is None:
        return True
    return now_ms - last_ms >= max(GAP_MS_MIN, (now_ms - started_ms) // SAMPLES_PER_SPAN)


class SamplePace:
    """When a worker has a sample taken; the store is asked no more often than one may be due.

    Times are milliseconds of any clock that goes on evenly.
    """

    def __init__(self, age_ms: int, now_ms: int) -> None:
        """Begin with a replay that is claimed now, `age_ms` after its start."""
        self._started_ms = now_ms - age_ms
        # Whoever begins to deliver has one taken.
        self._last_ms = now_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time; if so, the next one is due a gap later."""
        if not is_due(self._last_ms, self._started_ms, now_ms):
            return False
        self._last_ms = now_ms
        return True
