"""What a broker counts while it runs: plain numbers that the loop's thread alone changes.

A scrape reads them on a thread of its own without a lock. Each number is whole at any moment,
and numbers that belong together may be one event apart.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from logbroker.wire.apis import SERVED

SECONDS_BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""From an answer out of memory to one that a client has given up on."""


class Histogram:
    """How often something took how many seconds, in ranges that end with `SECONDS_BOUNDS`."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._counts = [0] * (len(SECONDS_BOUNDS) + 1)

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count what took this long, `times` over."""
        self._counts[bisect_left(SECONDS_BOUNDS, seconds)] += times
        self.sum_s += seconds * times

    @property
    def count(self) -> int:
        """How often it was observed."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Each bound, as Prometheus writes it, with how many took no longer."""
        bounds = (*map(str, SECONDS_BOUNDS), "+Inf")
        return zip(bounds, accumulate(self._counts), strict=True)


class TopicTraffic:
    """What went in and out of one topic at this broker."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0


def _per_api_count() -> dict[int, int]:
    return dict.fromkeys(map(int, SERVED), 0)


def _per_api_histogram() -> dict[int, Histogram]:
    return {int(api_key): Histogram() for api_key in SERVED}


@dataclass(slots=True)
class Counters:
    """Counts since the process started; topics have theirs in `TopicTraffic`."""

    requests: dict[int, int] = field(default_factory=_per_api_count)
    """By API key."""
    request_seconds: dict[int, Histogram] = field(default_factory=_per_api_histogram)
    """By API key, from the turn that read a request to its answer; what has none is not in it."""
    errors: dict[tuple[int, int], int] = field(default_factory=dict)
    """By API key and error code; an answer counts as often as it holds one."""
    flush_seconds: Histogram = field(default_factory=Histogram)
    flush_failures: int = 0
    write_failures: int = 0
    checkpoint_failures: int = 0
    retention_failures: int = 0
    segments_deleted: int = 0
    segments_deleted_bytes: int = 0
    connections_opened: int = 0
    connections_refused: int = 0
    connections_broken: int = 0
    group_rebalances: int = 0

    def count_error(self, api_key: int, code: int, times: int = 1) -> None:
        """Count an error code of an answer."""
        place = api_key, code
        self.errors[place] = self.errors.get(place, 0) + times
