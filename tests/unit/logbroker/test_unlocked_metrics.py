"""Metrics that one thread changes, as a scrape reads them."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.samples import Sample

from logbroker.histogram import Histogram
from logbroker.unlocked_metrics import CounterCollector, HistogramCollector


def test_a_histogram_counts_each_bound_to_the_range_below_it() -> None:
    registry = CollectorRegistry()
    collector = HistogramCollector("took_seconds", "How long it took.", registry, (0.5, 1.0))
    for seconds in (0.0, 0.5, 0.75, 99.0):
        collector.observe(seconds)
    assert generate_latest(registry).decode().splitlines() == [
        "# HELP took_seconds How long it took.",
        "# TYPE took_seconds histogram",
        'took_seconds_bucket{le="0.5"} 2.0',
        'took_seconds_bucket{le="1.0"} 3.0',
        'took_seconds_bucket{le="+Inf"} 4.0',
        "took_seconds_count 4.0",
        "took_seconds_sum 100.25",
    ]


def test_a_histogram_counts_a_duration_several_times() -> None:
    histogram = Histogram((0.5,))
    histogram.observe(0.25, times=3)
    assert histogram.count == 3


@pytest.mark.parametrize(
    "durations_s", [(0.25,), (0.5, 0.125), (0.75, 0.75), (0.5, 0.75, 1.25), (1.5, 0.0)]
)
def test_a_histogram_counts_several_durations_like_each_of_them(
    durations_s: tuple[float, ...],
) -> None:
    together, single = Histogram((0.5, 1.0)), Histogram((0.5, 1.0))
    together.observe_all(durations_s)
    for each in durations_s:
        single.observe(each)
    assert _exported(together) == _exported(single)


def _exported(histogram: Histogram) -> list[Sample]:
    family = HistogramMetricFamily("took_seconds", "How long it took.")
    histogram.add_to(family)
    return family.samples


def test_a_counter_with_a_label_starts_with_known_values() -> None:
    registry = CollectorRegistry()
    counter = CounterCollector("requests", "Requests.", registry, "result", ("good", "bad"))
    counter.add(value="good")
    counter.add(2, "unexpected")
    assert _samples(registry, "requests_total") == {
        ("good",): 1.0,
        ("bad",): 0.0,
        ("unexpected",): 2.0,
    }


def test_a_counter_without_a_label_starts_with_0() -> None:
    registry = CollectorRegistry()
    counter = CounterCollector("sent_bytes", "Bytes.", registry)
    assert _samples(registry, "sent_bytes_total") == {(): 0.0}
    counter.add(300)
    assert _samples(registry, "sent_bytes_total") == {(): 300.0}


def _samples(registry: CollectorRegistry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == name
    }
