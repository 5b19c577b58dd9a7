"""Metrics that one thread changes, for what it does thousands of times a second.

Those of `prometheus_client` take a lock for each change, and five times as long. A scrape reads
these on another thread: each number is consistent, and related ones may differ by one change.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from logbroker.histogram import Histogram


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
