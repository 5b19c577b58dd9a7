"""Large and many batches do not hold the loop.

Another thread validates those that take long; requests with many are appended in several turns.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from logbroker.config import BrokerConfig
from logbroker.records import validator
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, encode_batch
from logbroker.server import produce
from logbroker.server.broker import Broker
from logbroker.storage import partition_log
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    PRODUCE_VERSION,
    RawConnection,
    batch_of,
)
from tests.support.kafka.stepped_broker import apply_views, stepped_broker, turn_until

TIME_MS = 1_700_000_000_000
STORAGE_ERROR = 56
INVALID_RECORD = 87
SMALL = batch_of(b"x")
MEGABYTES = batch_of(bytes(3 * 2**20), codec=Codec.GZIP)
"""One record in three kilobytes; more than a turn may decompress."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours."""
    with stepped_broker(BrokerConfig(tmp_path / "log", port=0), partitions=3) as broker:
        yield broker


@pytest.fixture
def validation(broker: Broker) -> threading.Event:
    """The thread that validates waits for this event."""
    event = threading.Event()
    broker._validation_pool.submit(event.wait, lambda _: None)
    return event


@pytest.fixture
def client(broker: Broker, validation: threading.Event) -> Iterator[RawConnection]:
    with RawConnection(f"127.0.0.1:{broker.port}") as client:
        broker._loop._turn()
        yield client
    validation.set()


def turn_until_readable(broker: Broker, connection: RawConnection) -> None:
    turn_until(broker, connection.is_readable)


def turn_until_held(broker: Broker, client: RawConnection) -> None:
    turn_until(broker, lambda: broker._produce._held)
    assert not client.is_readable()


def end_offset(broker: Broker, partition: int = 0) -> int:
    return broker._partitions.get("events", partition).log.log_end_offset


def request_of(*batches: bytes, acks: int = ACKS_LEADER) -> ProduceRequest:
    """A request with a batch for each of the first partitions."""
    topic = ProduceRequest.TopicProduceData
    data = [
        topic.PartitionProduceData(index=number, records=batch)
        for number, batch in enumerate(batches)
    ]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[topic(name="events", partition_data=data)],
    )


def outcomes(client: RawConnection) -> list[tuple[int, int]]:
    """The error code and the base offset of each partition in the next response."""
    _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    ((*partitions,),) = [topic.partition_responses for topic in answer.responses]
    return [(each.error_code, each.base_offset) for each in partitions]


def with_codec(batch: bytes, codec: Codec) -> bytes:
    """The batch with the number of another codec in its header, and a right CRC."""
    changed = bytearray(batch)
    changed[22] |= codec
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("kind", ["megabytes", "records", "headers", "damaged"])
def test_a_large_batch_does_not_block_other_clients(
    broker: Broker,
    validation: threading.Event,
    client: RawConnection,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(partition_log, "ITEMS_AT_ONCE", 10)
    monkeypatch.setattr(validator, "ITEMS_AT_ONCE", 10)
    monkeypatch.setattr(validator.TurnAllowance, "headers_max", 10)
    batch, records = {
        "megabytes": (MEGABYTES, 1),
        "records": (batch_of(*[b""] * 11), 11),
        "headers": (encode_batch([NewRecord(TIME_MS, None, b"x", (("h", b""),) * 11)]), 1),
        "damaged": (with_codec(batch_of(b"x"), Codec.ZSTD), 0),
    }[kind]
    client.produce("events", SMALL, acks=ACKS_LEADER)
    client.produce("events", batch, acks=ACKS_LEADER)
    client.produce("events", SMALL, acks=ACKS_ALL)
    turn_until_readable(broker, client)
    assert client.produced() == (1, 0, 0)
    turn_until_held(broker, client)
    with RawConnection(f"127.0.0.1:{broker.port}") as other:
        other.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        turn_until_readable(broker, other)
        assert other.receive(ApiVersionsResponse, 3)[0] == 1
        other.produce("events", SMALL, acks=ACKS_ALL, partition=1)
        turn_until_readable(broker, other)
        assert other.produced()[1:] == (0, 0)
    assert not client.is_readable()
    assert end_offset(broker) == 1
    validation.set()
    turn_until_readable(broker, client)
    assert client.produced() == ((2, 0, 1) if records else (2, INVALID_RECORD, -1))
    turn_until_readable(broker, client)
    assert client.produced() == (3, 0, 1 + records)


def test_one_turn_decompresses_two_megabytes(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    batch = batch_of(bytes(2**20 - 100), codec=Codec.GZIP)
    for _ in range(5):
        client.produce("events", batch, acks=ACKS_LEADER)
    turn_until_readable(broker, client)
    assert [client.produced()[1:] for _ in range(2)] == [(0, 0), (0, 1)]
    turn_until_held(broker, client)
    validation.set()
    for offset in (2, 3, 4):
        turn_until_readable(broker, client)
        assert client.produced()[1:] == (0, offset)


def test_each_batch_of_a_request_is_stored_or_refused(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    wrong = with_codec(batch_of(b"x"), Codec.ZSTD)
    client.send(request_of(SMALL, wrong, MEGABYTES), PRODUCE_VERSION)
    turn_until_held(broker, client)
    assert [end_offset(broker, number) for number in range(3)] == [1, 0, 0]
    validation.set()
    turn_until_readable(broker, client)
    assert outcomes(client) == [(0, 0), (INVALID_RECORD, -1), (0, 0)]
    assert [end_offset(broker, number) for number in range(3)] == [1, 0, 1]


def test_a_failed_write_before_the_large_batch_is_reported(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    descriptor = broker._partitions.get("events", 0).log.segments[0].file.fileno()
    kept, full = os.dup(descriptor), os.open("/dev/full", os.O_RDWR)
    os.dup2(full, descriptor)
    client.send(request_of(SMALL, MEGABYTES), PRODUCE_VERSION)
    turn_until_held(broker, client)
    os.dup2(kept, descriptor)
    os.close(kept)
    os.close(full)
    validation.set()
    turn_until_readable(broker, client)
    assert outcomes(client) == [(STORAGE_ERROR, -1), (0, 0)]
    # It would fail the shutdown.
    broker._logs.logs["events", 0].failure = None


def test_a_failed_flush_before_the_large_batch_is_reported(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    may_flush = threading.Event()
    for _ in range(broker._config.flush_threads):
        broker._flush_pool.submit(may_flush.wait, lambda _: None)
    client.send(request_of(SMALL, MEGABYTES, acks=ACKS_ALL), PRODUCE_VERSION)
    turn_until_held(broker, client)
    log = broker._partitions.get("events", 0).log
    descriptor = log.segments[0].file.fileno()
    kept, (end, other_end) = os.dup(descriptor), os.pipe()
    # fdatasync of a pipe fails with EINVAL, as that of a broken disk does with EIO.
    os.dup2(other_end, descriptor)
    may_flush.set()
    turn_until(broker, lambda: broker._commit.partitions_flush_failed)
    os.dup2(kept, descriptor)
    for spare in (kept, end, other_end):
        os.close(spare)
    validation.set()
    turn_until_readable(broker, client)
    assert outcomes(client) == [(STORAGE_ERROR, -1), (0, 0)]
    # It would fail the shutdown.
    log.failure = None


def test_settings_that_change_during_the_validation_apply(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    client.produce("events", MEGABYTES, acks=ACKS_LEADER)
    turn_until_held(broker, client)
    broker._registry.change_settings("events", lambda _: {"cleanup.policy": "compact"})
    apply_views(broker)
    validation.set()
    turn_until_readable(broker, client)
    assert client.produced()[1] == INVALID_RECORD
    assert end_offset(broker) == 0


def test_a_large_batch_without_acknowledgement_is_stored(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    client.produce("events", MEGABYTES, acks=ACKS_NONE)
    client.produce("events", SMALL, acks=ACKS_LEADER)
    turn_until_held(broker, client)
    validation.set()
    turn_until_readable(broker, client)
    assert client.produced() == (2, 0, 1)


def test_a_connection_that_is_closed_during_the_validation_stores_nothing(
    broker: Broker, validation: threading.Event, client: RawConnection
) -> None:
    client.produce("events", MEGABYTES, acks=ACKS_LEADER)
    turn_until_held(broker, client)
    (held,) = broker._produce._held
    held.connection.close("idle")
    validation.set()
    turn_until(broker, lambda: not broker._produce._held)
    assert end_offset(broker) == 0


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
def test_a_request_with_many_batches_takes_several_turns(
    broker: Broker, client: RawConnection, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    monkeypatch.setattr(produce, "BATCHES_PER_TURN", 1)
    client.send(request_of(SMALL, b"no batch", SMALL, acks=acks), PRODUCE_VERSION)
    client.produce("events", SMALL, acks=ACKS_LEADER)
    broker._loop._turn()
    assert [end_offset(broker, number) for number in range(3)] == [1, 0, 0]
    assert not client.is_readable()
    turn_until_readable(broker, client)
    assert outcomes(client) == [(0, 0), (INVALID_RECORD, -1), (0, 0)]
    turn_until_readable(broker, client)
    assert client.produced() == (2, 0, 1)


def test_a_connection_that_is_closed_among_many_batches_is_forgotten(
    broker: Broker, client: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "BATCHES_PER_TURN", 1)
    client.send(request_of(SMALL, SMALL, SMALL), PRODUCE_VERSION)
    broker._loop._turn()
    (held,) = broker._produce._held
    held.connection.close("idle")
    turn_until(broker, lambda: not broker._produce._held)
    assert end_offset(broker, 2) == 0
