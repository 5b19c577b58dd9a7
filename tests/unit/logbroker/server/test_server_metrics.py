"""Metrics after disk failures, and scrapes while the event loop runs."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client.metrics_core import Metric

from logbroker.config import BrokerConfig
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable
from logbroker.server.broker import Broker
from logbroker.server.metrics.collector import BrokerCollector
from logbroker.wire.error_codes import ERROR_CODES, name_of
from tests.support.kafka.raw_connection import ACKS_ALL, ACKS_LEADER, RawConnection, batch_of
from tests.support.kafka.stepped_broker import apply_views
from tests.support.processes.waiting import until

HERE = 0
STORAGE_ERROR = 56


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours."""
    broker = Broker(BrokerConfig(tmp_path / "log", port=0))
    broker._loop._on_turn_end = broker._end_turn
    yield broker
    broker._listener.close()


def samples(broker: Broker) -> dict[str, float]:
    """Every sample by its name and its labels' values."""
    metrics: Iterator[Metric] = BrokerCollector(broker._metric_sources()).collect()
    return {
        " ".join([sample.name.removeprefix("logbroker_"), *sample.labels.values()]): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def turn_until(broker: Broker, condition: str, value: float) -> None:
    def holds() -> bool:
        broker._loop.call_soon(lambda: None)
        broker._loop._turn()
        return samples(broker)[condition] == value

    until(holds, f"{condition} is {value}")


def follow(broker: Broker, **settings: str) -> None:
    """Let `events` have these settings."""
    topic = Topic("events", UUID(int=1), ((HERE,),), settings)
    view = replace(broker._partitions.view, topics=TopicTable.of([topic]))
    broker._membership._queue_view(view)
    apply_views(broker)


def test_a_failed_flush_is_counted_and_fails_the_partition(broker: Broker) -> None:
    follow(broker, **{"flush.ms": "3600000"})
    with RawConnection(f"127.0.0.1:{broker.port}") as connection:
        broker._loop._turn()
        connection.produce("events", batch_of(b"a"), acks=ACKS_LEADER)
        turn_until(broker, "messages_in_total events", 1)
        assert samples(broker)["topic_unflushed_messages events"] == 1
        connection.produce("events", batch_of(b"b", b"c"), acks=ACKS_ALL)
        turn_until(broker, "messages_in_total events", 3)
        partition = broker._partitions.get("events", 0)
        descriptor = partition.log.segments[0].file.fileno()
        kept, (end, other_end) = os.dup(descriptor), os.pipe()
        # fdatasync of a pipe fails with EINVAL, as that of a broken disk does with EIO.
        os.dup2(other_end, descriptor)
        follow(broker)
        turn_until(broker, "partitions_flush_failed", 1)
        os.dup2(kept, descriptor)
        for spare in (kept, end, other_end):
            os.close(spare)
        assert [connection.produced()[1] for _ in range(2)] == [0, STORAGE_ERROR]
    metrics = samples(broker)
    assert metrics["flush_failures_total"] == 1
    assert metrics["flushes_total"] == 0
    assert metrics["topic_unflushed_messages events"] == 3
    assert metrics["request_errors_total Produce KAFKA_STORAGE_ERROR"] == 1


def test_a_partition_whose_folder_cannot_be_created_is_counted(broker: Broker) -> None:
    (broker._config.data_dir / "events-0").write_text("in the way")
    follow(broker)
    metrics = samples(broker)
    assert metrics["partitions_open_failed"] == 1
    assert metrics["partitions_led"] == 0
    assert metrics["partitions_offline"] == 0


def test_free_disk_space_is_reported_if_the_system_knows_it(broker: Broker) -> None:
    disk = os.statvfs(broker._config.data_dir)
    assert 0 < samples(broker)["disk_free_bytes"] <= disk.f_frsize * disk.f_blocks
    renamed = broker._config.data_dir.rename(broker._config.data_dir.with_name("away"))
    assert "disk_free_bytes" not in samples(broker)
    renamed.rename(broker._config.data_dir)


def test_a_scrape_reads_while_topics_are_created_and_deleted(broker: Broker) -> None:
    """A container that changes while it is walked raises; so this reads while it changes."""
    failures: list[BaseException] = []
    is_over = threading.Event()

    def scrape() -> None:
        try:
            while not is_over.is_set():
                samples(broker)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    for number in range(20_000):
        name = f"topic-{number % 100}"
        if broker._partitions._traffic.get(name) is None:
            broker._partitions.traffic_of(name)
        else:
            broker._partitions.remove_traffic(name)
        broker._counters.count_error(0, number % 101 - 1)
    is_over.set()
    thread.join()
    assert not failures


def test_every_error_code_has_a_name_of_its_own() -> None:
    codes = set(ERROR_CODES.values())
    assert len({name_of(code) for code in codes}) == len(codes)
    assert all(name_of(code) == name_of(code).upper() != "UNKNOWN" for code in codes)
