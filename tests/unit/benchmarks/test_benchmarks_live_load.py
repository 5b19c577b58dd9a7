"""Latencies are computed for the requested events, by id."""

import pytest

from benchmarks.live_load import latencies


def test_each_latency_is_from_publishing_to_arrival() -> None:
    published = {f"evt_{number}": 5.0 for number in range(101)}
    arrivals = {f"evt_{number}": 5.0 + number / 1_000 for number in range(101)}
    measured = latencies(published, arrivals, published)
    assert measured == pytest.approx((50.0, 99.0, 100.0))


def test_events_that_are_not_requested_do_not_count() -> None:
    published = {"evt_1": 1.0, "evt_2": 1.0, "evt_hanging": 1.0}
    measured = latencies(published, {"evt_1": 1.002, "evt_2": 1.004}, ["evt_1", "evt_2"])
    assert measured.p50 == pytest.approx(3.0)
    assert measured.longest == pytest.approx(4.0)
