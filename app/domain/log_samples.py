"""Samples of the log over time: records and sizes of topics, lags of consumer groups."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from app.domain.hours import HOUR_MS
from app.domain.windows import MINUTE_MS

MINUTES_KEPT_MS: Final = 3 * HOUR_MS
"""Samples of minutes are read for two hours at most; older ones only in spans of ten minutes."""

_GAP_SPANS: Final = 2
"""One missing sample is no gap: a restart takes less than two minutes."""


class SampleSpan(StrEnum):
    """The length of the spans that samples describe."""

    MINUTE = "minute"
    TEN_MINUTES = "tenMinutes"

    @property
    def width_ms(self) -> int:
        """Length of a span; each starts at a multiple of it."""
        return MINUTE_MS if self is SampleSpan.MINUTE else 10 * MINUTE_MS

    @classmethod
    def since(cls, from_ms: int, present_ms: int) -> "SampleSpan":
        """The shortest span whose samples since `from_ms` are kept."""
        is_recent = present_ms - from_ms <= MINUTES_KEPT_MS - HOUR_MS
        return cls.MINUTE if is_recent else cls.TEN_MINUTES


class SeriesKind(StrEnum):
    """What a series of samples describes."""

    TOPIC = "topic"
    GROUP = "group"


class Series(NamedTuple):
    """A topic or consumer group by name. An empty name means all of them."""

    kind: SeriesKind
    name: str


ALL_TOPICS: Final = Series(SeriesKind.TOPIC, "")
ALL_GROUPS: Final = Series(SeriesKind.GROUP, "")


@dataclass(frozen=True, slots=True)
class LogSample:
    """The value of a series in the span that starts at `start_ms`.

    Of a topic, `value` is the sum of its end offsets and `bytes` its size, None if unknown, both as
    last read in the span. Of a group, `value` is the highest lag in the span.
    """

    start_ms: int
    value: int
    bytes: int | None = None


class SampleInterval(NamedTuple):
    """A number that holds in `[from_ms, to_ms)`."""

    from_ms: int
    to_ms: int
    value: int


def written_intervals(
    samples: Iterable[LogSample], span: SampleSpan, present_ms: int
) -> tuple[SampleInterval, ...]:
    """The records that were written between consecutive samples of a topic, oldest first.

    An interval without samples is part of the one that follows. A topic that was deleted counts as
    no record.
    """
    width_ms = span.width_ms
    return tuple(
        SampleInterval(
            one.start_ms + width_ms,
            max(one.start_ms + width_ms + 1, min(later.start_ms + width_ms, present_ms)),
            max(0, later.value - one.value),
        )
        for one, later in pairwise(samples)
    )


def level_intervals(
    levels: Iterable[tuple[int, int]], span: SampleSpan
) -> tuple[SampleInterval, ...]:
    """Levels by the start of their span, each until the next one. Gaps are left out."""
    width_ms = span.width_ms
    found = list(levels)
    ends_ms = [start_ms for start_ms, _ in found[1:]] + [found[-1][0] + width_ms] if found else []
    return tuple(
        SampleInterval(
            start_ms,
            end_ms if end_ms - start_ms <= _GAP_SPANS * width_ms else start_ms + width_ms,
            level,
        )
        for (start_ms, level), end_ms in zip(found, ends_ms, strict=True)
    )
