"""Metrics that one thread changes, for what it does thousands of times a second.

Those of `prometheus_client` take a lock for each change, and ten times as long. A scrape reads
these on another thread: each number is consistent, and related ones may differ by one change.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


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

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add its buckets and their sum to a metric family."""
        bounds = (*map(str, self._bounds_s), "+Inf")
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets, self._sum_s)


class HistogramCollector(Collector):
    """Exports one histogram, without labels."""

    def __init__(
        self, name: str, text: str, registry: CollectorRegistry, bounds_s: Sequence[float]
    ) -> None:
        self._name = name
        self._text = text
        self._histogram = Histogram(bounds_s)
        self.observe = self._histogram.observe
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family."""
        family = HistogramMetricFamily(self._name, self._text)
        self._histogram.add_to(family)
        yield family


class CounterCollector(Collector):
    """Exports one counter: by the values of a label, of which `values` start with 0, or alone."""

    def __init__(
        self,
        name: str,
        text: str,
        registry: CollectorRegistry,
        label: str | None = None,
        values: Iterable[str] = (),
    ) -> None:
        self._name = name
        self._text = text
        self._label = label
        self._counts = dict.fromkeys(("",) if label is None else values, 0)
        registry.register(self)

    def add(self, amount: int = 1, value: str = "") -> None:
        """Add to the count of this value of the label."""
        self._counts[value] = self._counts.get(value, 0) + amount

    def collect(self) -> Iterator[Metric]:
        """Yield the metric family."""
        labels = () if self._label is None else (self._label,)
        family = CounterMetricFamily(self._name, self._text, labels=labels)
        for value, count in self._counts.copy().items():
            family.add_metric((value,) if labels else (), count)
        yield family
