"""Requests on a bare connection, and loads spread over several brokers."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.cold_requests import cold_connection
from benchmarks.fetch_load import StoredLog, fetch_spread
from benchmarks.frames import ACKS_ALL, batch_of, encode_produce
from benchmarks.produce_load import Load, produce_spread, send_once
from benchmarks.running_broker import RunningBroker, running_broker
from tests.support.processes.waiting import until

pytestmark = pytest.mark.processes

TIME_MS = 1_795_000_000_000
RECORDS = 50


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[RunningBroker]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(running_broker(tmp_path / name, keeps_data=False))
            for name in ("one", "other")
        ]


def test_metadata_names_some_topics_or_all_and_creates_none(
    brokers: list[RunningBroker],
) -> None:
    one, other = brokers
    one.create_topic("here", 3)
    with cold_connection(one.address) as connection:
        assert [each.name for each in connection.get_metadata(None).topics] == ["here"]
        (found,) = connection.get_metadata(["here"]).topics
        assert [each.partition_index for each in found.partitions] == [0, 1, 2]
        assert connection.get_metadata([]).topics == []
        assert connection.get_metadata(["absent"]).topics[0].error_code != 0
        assert len(connection.get_metadata(None).topics) == 1
        assert connection.get_group_state("unknown") == "Dead"
    with cold_connection(other.address) as connection:
        assert connection.get_metadata(None).topics == []


def test_each_request_of_a_spread_load_reaches_its_own_broker(
    brokers: list[RunningBroker],
) -> None:
    batch = batch_of(RECORDS, TIME_MS)
    targets = []
    for number, broker in enumerate(brokers):
        broker.create_topic(f"load-{number}")
        request = encode_produce(f"load-{number}", batch, RECORDS, ACKS_ALL)
        targets.append((broker.address, request))
    sent = produce_spread(targets, Load(connections=2, in_flight=3, seconds=0.05))
    ends = [send_once(address, request) for address, request in targets]
    assert all(ends)
    assert sum(ends) == sent.requests * RECORDS
    logs = [
        (broker.address, StoredLog(f"load-{number}", 0, len(batch), RECORDS, ends[number]))
        for number, broker in enumerate(brokers)
    ]
    until(
        lambda: fetch_spread(logs, len(batch), connections=2, seconds=0.05).responses,
        "complete responses arrive, each of which is checked",
    )
