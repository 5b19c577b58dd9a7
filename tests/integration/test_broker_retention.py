"""Segments roll and are deleted by age, size or request; offsets continue."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import ACKS_ALL, RawConnection, batch_of
from tests.support.processes.waiting import DEADLINE_S, until

HOUR_MS = 3_600_000
LONG_AGO_MS = 1_700_000_000_000
OFFSET_OUT_OF_RANGE = 1
VALUE = b"x" * 900
BATCH_BYTES = len(batch_of(VALUE))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--retention-check-s", "0.1", "--file-delete-delay-s", "0.1")
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log", *options) as broker:
        yield broker.serve()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def put(connection: RawConnection, topic: str, count: int, timestamp_ms: int) -> None:
    for _ in range(count):
        connection.produce(topic, batch_of(VALUE, timestamp_ms=timestamp_ms), acks=ACKS_ALL)
        assert connection.produced()[1] == 0


def watermarks(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
    consumer.close()
    return low, high


def segments(broker: BrokerProcess, topic: str) -> list[int]:
    """The base offsets of the segment files."""
    folder = broker.data_dir / f"{topic}-0"
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def test_a_segment_holds_as_many_bytes_as_the_topic_says(
    broker: BrokerProcess, connection: RawConnection, topic: str
) -> None:
    broker.make_topic(topic, segment_bytes=str(3 * BATCH_BYTES))
    put(connection, topic, 10, now_ms())
    assert segments(broker, topic) == [0, 3, 6, 9]
    connection.fetch(topic, 0)
    # A response may end at a segment's end; the next fetch continues there.
    offsets: list[int] = []
    offsets += [record.offset for record in connection.fetched().records]
    while len(offsets) < 10:
        connection.fetch(topic, offsets[-1] + 1)
        offsets += [record.offset for record in connection.fetched().records]
    assert offsets == list(range(10))


def test_the_oldest_segments_of_a_log_above_retention_bytes_are_deleted(
    broker: BrokerProcess, connection: RawConnection, topic: str
) -> None:
    broker.make_topic(
        topic, segment_bytes=str(3 * BATCH_BYTES), retention_bytes=str(5 * BATCH_BYTES)
    )
    put(connection, topic, 20, now_ms())
    # Segments of three batches: without [15, 18) the log would be smaller than it may be.
    until(lambda: segments(broker, topic) == [15, 18], "the oldest segments are gone")
    assert watermarks(broker, topic) == (15, 20)
    connection.fetch(topic, 14)
    assert connection.fetched().error_code == OFFSET_OUT_OF_RANGE
    connection.fetch(topic, 15)
    assert connection.fetched().records[0].offset == 15
    until(lambda: not leftovers(broker, topic), "the files left the disk")


def leftovers(broker: BrokerProcess, topic: str) -> list[Path]:
    folder = broker.data_dir / f"{topic}-0"
    return [path for path in folder.iterdir() if path.name.endswith(".deleted")]


def test_old_segments_are_deleted_and_new_ones_kept(
    broker: BrokerProcess, connection: RawConnection, topic: str
) -> None:
    broker.make_topic(topic, segment_bytes=str(3 * BATCH_BYTES), retention_ms=str(HOUR_MS))
    put(connection, topic, 4, now_ms() - HOUR_MS // 2)
    put(connection, topic, 5, LONG_AGO_MS)
    put(connection, topic, 3, now_ms())
    # The oldest segment is young enough, so it stays, and keeps all that came after it.
    assert watermarks(broker, topic) == (0, 12)

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    place = TopicPartition(topic, 0, 4)
    admin.delete_records([place])[place].result(DEADLINE_S)
    # [0, 3) goes for its offsets; [3, 6) holds a young record; then nothing stands out.
    until(lambda: segments(broker, topic) == [3, 6, 9], "the first segment is gone")
    assert watermarks(broker, topic) == (4, 12)


def test_a_log_with_only_old_records_is_emptied_and_keeps_its_end_offset(
    broker: BrokerProcess, connection: RawConnection, topic: str
) -> None:
    broker.make_topic(topic, retention_ms=str(HOUR_MS))
    put(connection, topic, 5, LONG_AGO_MS)
    until(lambda: watermarks(broker, topic) == (5, 5), "the log is empty")
    assert segments(broker, topic) == [5]
    put(connection, topic, 2, now_ms())
    assert watermarks(broker, topic) == (5, 7)
    connection.fetch(topic, 5)
    assert [record.offset for record in connection.fetched().records] == [5, 6]


def test_a_consumer_finishes_reading_a_deleted_segment(broker: BrokerProcess, topic: str) -> None:
    broker.make_topic(topic, segment_bytes=str(40 * BATCH_BYTES), retention_ms="-1")
    with (
        RawConnection(broker.bootstrap_servers) as connection,
        RawConnection(broker.bootstrap_servers, receive_buffer_bytes=4096) as slow,
    ):
        value = b"x" * (30 * BATCH_BYTES)
        for _ in range(100):
            connection.produce(topic, batch_of(value), acks=ACKS_ALL)
            assert connection.produced()[1] == 0
        for offset in range(100):
            slow.fetch(topic, offset)
        until(slow.is_readable, "the first answer is on its way")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        place = TopicPartition(topic, 0, 100)
        admin.delete_records([place])[place].result(DEADLINE_S)
        until(lambda: segments(broker, topic) in ([99], [100]), "all full segments are gone")
        until(lambda: not leftovers(broker, topic), "their files left the disk")
        # What was answered was promised: the open files hold it until it is sent.
        fetched = slow.fetched()
        assert fetched.error_code == 0
        assert fetched.records[0].value == value


def test_changed_settings_apply_at_the_next_check(
    broker: BrokerProcess, connection: RawConnection, topic: str
) -> None:
    broker.make_topic(topic, segment_bytes=str(3 * BATCH_BYTES), retention_ms="-1")
    put(connection, topic, 7, LONG_AGO_MS)
    assert watermarks(broker, topic) == (0, 7)
    broker.change_topic(topic, retention_ms="1000")
    until(lambda: watermarks(broker, topic) == (7, 7), "everything is gone")


def test_a_moved_log_start_offset_survives_a_crash(tmp_path: Path) -> None:
    options = ("--retention-check-s", "0.1", "--file-delete-delay-s", "0")
    broker = BrokerProcess(tmp_path / "log", *options)
    with broker.serve():
        broker.make_topic("events", segment_bytes=str(3 * BATCH_BYTES), retention_ms=str(HOUR_MS))
        with RawConnection(broker.bootstrap_servers) as connection:
            put(connection, "events", 6, LONG_AGO_MS)
            put(connection, "events", 2, now_ms())
        until(lambda: watermarks(broker, "events") == (6, 8), "the old segments are gone")
        broker.kill()
        broker.serve()
        assert watermarks(broker, "events") == (6, 8)


def test_a_failed_retention_does_not_stop_clients(
    broker: BrokerProcess, connection: RawConnection, topic: str
) -> None:
    broker.make_topic(topic, segment_bytes="1024")
    put(connection, topic, 3, now_ms())
    # No file takes the name of a folder.
    (broker.data_dir / f"{topic}-0" / f"{0:020d}.log.deleted").mkdir()
    broker.change_topic(topic, retention_bytes="0")
    broker.until_says(f"retention failed partition={topic}-0")
    put(connection, topic, 1, now_ms())
