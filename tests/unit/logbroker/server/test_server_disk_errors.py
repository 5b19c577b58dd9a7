"""A disk that fails to read or flush one log costs only its partition, until it works again."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchResponse

from logbroker.config import BrokerConfig
from logbroker.server.broker import Broker
from logbroker.storage import segment_file
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    FETCH_VERSION,
    RawConnection,
    batch_of,
    fetch_request,
)
from tests.support.kafka.stepped_broker import apply_views, stepped_broker, turn_until

STORAGE_ERROR = 56
BATCH = batch_of(b"x" * 1000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours."""
    with stepped_broker(BrokerConfig(tmp_path / "log", port=0), partitions=2) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawConnection]:
    """A client that has stored a batch in both partitions."""
    with RawConnection(f"127.0.0.1:{broker.port}") as client:
        broker._loop._turn()
        for partition in (0, 1):
            assert produce(broker, client, partition) == (0, 0)
        yield client


def produce(broker: Broker, client: RawConnection, partition: int) -> tuple[int, int]:
    """The error code and the base offset of a batch."""
    client.produce("events", BATCH, acks=ACKS_ALL, partition=partition)
    turn_until(broker, client.is_readable)
    return client.produced()[1:]


def fetch_both() -> Any:
    request, second = (
        fetch_request("events", 0, min_bytes=1, max_wait_ms=0, partition=number)
        for number in (0, 1)
    )
    request.topics[0].partitions.append(second.topics[0].partitions[0])
    return request


def fetched(broker: Broker, client: RawConnection) -> list[tuple[int, int]]:
    """The error code and the bytes of each partition."""
    client.send(fetch_both(), FETCH_VERSION)
    turn_until(broker, client.is_readable)
    _, answer = client.receive(FetchResponse, FETCH_VERSION)
    ((*partitions,),) = [topic.partitions for topic in answer.responses]
    return [(each.error_code, len(each.records or b"")) for each in partitions]


@contextlib.contextmanager
def failing_disk(broker: Broker) -> Iterator[None]:
    """Reads and flushes of the first partition fail, as those of a broken disk do with EIO."""
    descriptor = broker._partitions.get("events", 0).log.segments[0].file.fileno()
    kept, (end, other_end) = os.dup(descriptor), os.pipe()
    os.dup2(other_end, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        for spare in (kept, end, other_end):
            os.close(spare)


def fail_flush(broker: Broker, client: RawConnection) -> None:
    """Store a second batch of the first partition, whose flush fails."""
    log = broker._partitions.get("events", 0).log
    log.append(memoryview(bytearray(BATCH)), broker._loop.now_ms)
    log.write()
    with failing_disk(broker):
        broker._commit.schedule_flush(broker._partitions.get("events", 0))
        turn_until(broker, lambda: broker._commit.partitions_flush_failed)
    assert produce(broker, client, 0) == (STORAGE_ERROR, -1)
    assert fetched(broker, client) == [(0, len(BATCH))] * 2


def test_a_partition_whose_flush_failed_is_reopened_without_a_restart(
    broker: Broker, client: RawConnection
) -> None:
    fail_flush(broker, client)
    # This one waits for records, and is answered before the log is closed.
    waiting = fetch_request("events", 1, min_bytes=1, max_wait_ms=60_000)
    client.send(waiting, FETCH_VERSION)
    broker._loop._turn()
    broker._reopen_failed()
    turn_until(broker, client.is_readable)
    assert client.fetched().error_code == STORAGE_ERROR
    turn_until(broker, lambda: not broker._partitions.failed)
    assert broker._commit.partitions_flush_failed == 0
    # The batch whose flush failed is on the disk.
    assert produce(broker, client, 0) == (0, 2)
    assert produce(broker, client, 1) == (0, 1)


def test_what_a_failed_flush_lost_is_dropped(
    broker: Broker, client: RawConnection, tmp_path: Path
) -> None:
    fail_flush(broker, client)
    os.truncate(tmp_path / "log" / "events-0" / f"{0:020}.log", len(BATCH) + 500)
    broker._reopen_failed()
    turn_until(broker, lambda: not broker._partitions.failed)
    assert produce(broker, client, 0) == (0, 1)


def test_a_log_that_cannot_be_reopened_stays_offline_and_others_are_served(
    broker: Broker, client: RawConnection, tmp_path: Path
) -> None:
    fail_flush(broker, client)
    checkpoint = tmp_path / "log" / "events-0" / "leader-epoch-checkpoint"
    kept = checkpoint.rename(tmp_path / "kept")
    checkpoint.mkdir()
    broker._reopen_failed()
    turn_until(broker, lambda: broker._partitions.open_failed)
    apply_views(broker)
    assert produce(broker, client, 0) == (STORAGE_ERROR, -1)
    assert fetched(broker, client) == [(STORAGE_ERROR, 0), (0, len(BATCH))]
    checkpoint.rmdir()
    kept.rename(checkpoint)
    broker._reopen_failed()
    turn_until(broker, lambda: not broker._partitions.failed)
    assert fetched(broker, client) == [(0, 2 * len(BATCH)), (0, len(BATCH))]


def test_a_segment_that_cannot_be_read_costs_other_partitions_one_connection(
    broker: Broker, client: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing_disk(broker):
        client.send(fetch_both(), FETCH_VERSION)
        file = broker._partitions.get("events", 0).log.segments[0].file
        turn_until(broker, lambda: file._failed_s > 0)
        with pytest.raises(ConnectionResetError):
            client.receive_frame()
        with RawConnection(f"127.0.0.1:{broker.port}") as again:
            assert fetched(broker, again) == [(STORAGE_ERROR, 0), (0, len(BATCH))]
    monkeypatch.setattr(segment_file, "READ_RETRY_S", 0.0)
    with RawConnection(f"127.0.0.1:{broker.port}") as again:
        assert fetched(broker, again) == [(0, len(BATCH)), (0, len(BATCH))]
