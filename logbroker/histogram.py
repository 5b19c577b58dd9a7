"""A histogram that one thread changes, and a scrape reads on another one without a lock."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A broker without metrics need not load it.
    from prometheus_client.core import HistogramMetricFamily


class Histogram:
    """Durations in seconds, counted in buckets with the upper `bounds_s`."""

    __slots__ = ("_bounds_s", "_counts", "_sum_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a duration `times` times."""
        self._counts[bisect_left(self._bounds_s, seconds)] += times
        self._sum_s += seconds * times

    def observe_all(self, durations_s: Sequence[float]) -> None:
        """Count several durations; fast if they are in the same bucket, as those of a batch are."""
        bounds_s = self._bounds_s
        if bisect_left(bounds_s, min(durations_s)) == (
            bucket := bisect_left(bounds_s, max(durations_s))
        ):
            self._counts[bucket] += len(durations_s)
        else:
            for each in durations_s:
                self._counts[bisect_left(bounds_s, each)] += 1
        self._sum_s += sum(durations_s)

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def add_to(self, family: "HistogramMetricFamily", labels: Sequence[str] = ()) -> None:
        """Add its buckets and their sum to a metric family."""
        bounds = (*map(str, self._bounds_s), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets, self._sum_s)
