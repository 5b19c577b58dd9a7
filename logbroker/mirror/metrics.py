"""What a mirror counts, and where Prometheus asks for it."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from logbroker.errors import ConfigurationError
from logbroker.mirror.uncopied import UncopiedSince

PREFIX: Final = "logbroker_mirror_"

DELAY_BOUNDS_S: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0),
)
"""From a copy at once to one after a day's outage."""


class Family(NamedTuple):
    """One metric."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_TOPIC: Final = ("topic",)

FAMILIES: Final[Mapping[str, Family]] = {
    "records_total": Family("counter", "Records that the destination acknowledged.", _TOPIC),
    "bytes_total": Family("counter", "Bytes of their keys and values.", _TOPIC),
    "passed_over_total": Family(
        "counter", "Records that are not to be carried over.", ("topic", "reason")
    ),
    "records_lost_total": Family(
        "counter", "Offsets that the source deleted before they were copied.", _TOPIC
    ),
    "lag_records": Family(
        "gauge",
        "Offsets up to the source's end that are not settled yet.",
        ("topic", "partition"),
    ),
    "behind_seconds": Family(
        "gauge", "How long the oldest record that is not settled has been at the source.", _TOPIC
    ),
    "delay_seconds": Family(
        "histogram", "From a record's time to its acknowledgement at the destination.", _TOPIC
    ),
    "errors_total": Family("counter", "What went wrong, by its name.", ("reason",)),
    "restarts_total": Family("counter", "Times it began again at the committed positions."),
}
"""Without `PREFIX`."""


class TopicCounts:
    """What was copied of one topic."""

    __slots__ = ("_delays", "_delays_s", "bytes", "lost", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.lost = 0
        self._delays = [0] * (len(DELAY_BOUNDS_S) + 1)
        self._delays_s = 0.0

    def copied(self, size: int, delay_s: float) -> None:
        """A record of so many bytes was acknowledged, so long after its time."""
        self.records += 1
        self.bytes += size
        self._delays[bisect_left(DELAY_BOUNDS_S, delay_s)] += 1
        self._delays_s += delay_s

    def add_delays(self, topic: str, family: HistogramMetricFamily) -> None:
        """Show the delays as Prometheus has them."""
        bounds = (*map(str, DELAY_BOUNDS_S), "+Inf")
        buckets = list(zip(bounds, accumulate(self._delays), strict=True))
        family.add_metric((topic,), buckets, self._delays_s)


class MirrorCounts:
    """Plain numbers that the mirror's thread alone changes; a scrape reads them without a lock."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounts] = {}
        self.passed_over: dict[tuple[str, str], int] = {}
        self.lags: dict[tuple[str, int], int] = {}
        self.uncopied: dict[tuple[str, int], UncopiedSince] = {}
        """Also while it begins again, of what it had last."""
        self.errors: dict[str, int] = {}
        self.restarts = 0

    def of_topic(self, topic: str) -> TopicCounts:
        """Where to count what is copied of a topic."""
        return self.topics.setdefault(topic, TopicCounts())

    def uncopied_of(self, place: tuple[str, int]) -> UncopiedSince:
        """Where to tell how far a partition is; times are seconds of a clock that never jumps."""
        return self.uncopied.setdefault(place, UncopiedSince())

    def pass_over(self, topic: str, reason: str) -> None:
        """Count a record that stays behind."""
        place = topic, reason
        self.passed_over[place] = self.passed_over.get(place, 0) + 1

    def error(self, reason: str) -> None:
        """Count what went wrong: the name of a client's error, or one of our own."""
        self.errors[reason] = self.errors.get(reason, 0) + 1


class MirrorCollector:
    """Every metric of `FAMILIES`."""

    def __init__(self, counts: MirrorCounts, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` is the clock of those who tell how far a partition is."""
        self._counts = counts
        self._now_s = now_s

    def collect(self) -> Iterator[Metric]:
        """Each metric with what was counted so far."""
        counts = self._counts
        topics = counts.topics.copy()
        yield _numbers("records_total", {(name,): each.records for name, each in topics.items()})
        yield _numbers("bytes_total", {(name,): each.bytes for name, each in topics.items()})
        yield _numbers("passed_over_total", counts.passed_over.copy())
        yield _numbers("records_lost_total", {(name,): each.lost for name, each in topics.items()})
        lags = counts.lags.copy()
        yield _numbers("lag_records", {(t, str(number)): lag for (t, number), lag in lags.items()})
        yield _numbers("behind_seconds", self._behind(topics))
        yield self._delays(topics)
        yield _numbers("errors_total", {(name,): n for name, n in counts.errors.copy().items()})
        yield _numbers("restarts_total", {(): counts.restarts})

    def _behind(self, topics: Iterable[str]) -> Mapping[tuple[str], float]:
        behind = dict.fromkeys(((topic,) for topic in topics), 0.0)
        now_s = self._now_s()
        for (topic, _), each in self._counts.uncopied.copy().items():
            if each.since_s is not None:
                behind[topic,] = max(behind.get((topic,), 0.0), now_s - each.since_s)
        return behind

    def _delays(self, topics: Mapping[str, TopicCounts]) -> Metric:
        _, text, labels = FAMILIES["delay_seconds"]
        family = HistogramMetricFamily(PREFIX + "delay_seconds", text, labels=labels)
        for topic, each in topics.items():
            each.add_delays(topic, family)
        return family


def serve_metrics(counts: MirrorCounts, host: str, port: int) -> None:
    """Show what a mirror counts, and its process's memory, descriptors and CPU time.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(MirrorCollector(counts))
    ProcessCollector(registry=registry)
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(f"metrics cannot listen on {host}:{port}: {error}") from error


def _numbers(name: str, values: Mapping[Any, float]) -> Metric:
    """The counter or gauge of this name; `values` are by their labels."""
    kind, text, labels = FAMILIES[name]
    made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = made(PREFIX + name, text, labels=labels)
    for each, value in values.items():
        family.add_metric(each, value)
    return family
