"""Counts of windows in a topic."""

import json

import pytest

from spark_jobs.errors import InvalidOption, SourceFailed
from spark_jobs.jobs.windowed_counts.publishing import publish_all, record

START_MS = 1_795_248_240_000


def test_the_key_of_a_count_is_its_window_and_type() -> None:
    made = record(START_MS, "order paid", 1_204, 60)
    assert made["key"] == b"2026-11-21T08:04:00Z order paid"
    assert made["timestamp"] == START_MS
    assert json.loads(made["value"]) == {
        "windowStart": "2026-11-21T08:04:00Z",
        "windowEnd": "2026-11-21T08:05:00Z",
        "eventType": "order paid",
        "events": 1_204,
    }


def test_a_window_before_1970_has_timestamp_0() -> None:
    made = record(-60_000, "order.paid", 1, 60)
    assert made["timestamp"] == 0
    assert made["key"] == b"1969-12-31T23:59:00Z order.paid"


def test_an_unknown_client_property_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"no\.such\.thing"):
        publish_all([], "counts", {"bootstrap.servers": "127.0.0.1:1", "no.such.thing": "1"})


def test_unacknowledged_counts_are_an_error() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": "200", "linger.ms": "0"}
    with pytest.raises(SourceFailed, match="not all records were published to counts"):
        publish_all([record(START_MS, "order.paid", 7, 60)], "counts", nowhere)
