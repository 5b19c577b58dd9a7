"""The driver for webhook systems: marks of events, figures of arrivals, requests to each API."""

import json
import math

import click
import httpx
import pytest

from benchmarks.peers.webhooks.__main__ import check_arrivals
from benchmarks.peers.webhooks.marked_receiver import (
    Arrival,
    Arrivals,
    mark,
    marked_receiver,
    marks_in,
)
from benchmarks.peers.webhooks.measuring import Stage, brought
from benchmarks.peers.webhooks.systems import EVENT_BYTES, payload


def test_a_payload_has_its_size_and_its_mark() -> None:
    body = json.dumps(payload(41), separators=(",", ":")).encode()
    assert len(body) == EVENT_BYTES
    assert marks_in(b"[" + body + b"," + body + b"]") == [41, 41]


def test_missing_and_repeated_events_are_counted_by_their_numbers() -> None:
    arrivals = Arrivals(
        (Arrival(3, 10.5), Arrival(1, 11.0), Arrival(3, 12.0), Arrival(2, 12.5), Arrival(2, 20.0))
    )
    assert arrivals.first_s == {3: 10.5, 1: 11.0, 2: 12.5}
    assert brought(arrivals, asked_s=10.0, events=5) == (1.0, 2, 2, 500.0)


def test_without_arrivals_there_is_no_rate() -> None:
    found = brought(Arrivals(()), asked_s=0.0, events=5)
    assert math.isnan(found.rate)
    assert found.missing == 5


def test_one_arrival_has_a_time_but_no_rate() -> None:
    found = brought(Arrivals((Arrival(3, 10.5),)), asked_s=10.0, events=5)
    assert math.isnan(found.rate)
    assert found.first_ms == 500.0


def test_stages_without_arrivals_end_the_command_with_their_names() -> None:
    stages = [Stage("missed events", [], has_arrivals=False), Stage("idling", [])]
    check_arrivals(stages[1:], "http://receiver.example/hook")
    with pytest.raises(click.ClickException, match="no event arrived: stages=missed events; "):
        check_arrivals(stages, "http://receiver.example/hook")


@pytest.mark.processes
def test_the_receiver_records_marks_and_answers_as_requested() -> None:
    with marked_receiver("127.0.0.1") as receiver:
        url = f"http://127.0.0.1:{receiver.port}/hook"
        receiver.answer(503)
        assert httpx.post(url, content=mark(1)).status_code == 503
        assert receiver.count() == 1
        assert receiver.distinct(range(2)) == 1
        receiver.answer(204)
        assert receiver.count() == 0, "the events of the outage are forgotten"
        assert httpx.post(url, content=f"[{mark(1)},{mark(2)}]").status_code == 204
        assert [number for number, _ in receiver.arrivals().events] == [1, 2]
        assert receiver.count() == 0
