"""Planning and reading of ranges, without Spark."""

from itertools import chain

import pytest

from logbroker.client.raw import EARLIEST, LATEST, RawCluster, TopicPartition
from logbroker.records.record import NewRecord, encode_batch
from spark_jobs.errors import DataLost, InvalidOption, SourceFailed, TopicReplaced
from spark_jobs.log.planning import LogView, TopicPosition, plan_between, plan_incremental
from spark_jobs.log.reading import read_range
from spark_jobs.offsets.limits import Assigned, AtOffsets, AtTimes, Subscribed
from spark_jobs.offsets.ranges import Losses, OffsetRange
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.damaged_log import (
    damage_batch,
    put_garbage,
    spoil_last_record,
    stored_batches,
)
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.written_log import Row, Sent, WrittenLog

TOPIC = "orders"


@pytest.fixture
def log(broker: BrokerProcess) -> WrittenLog:
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic(TOPIC, 2)
    return log


def servers(log: WrittenLog) -> dict[str, str]:
    return {"bootstrap.servers": log.bootstrap_servers}


def write(log: WrittenLog, count: int, partition: int = 0) -> list[Row]:
    records = (
        Sent(b"value %d" % n, partition=partition, timestamp=1_000 + n) for n in range(count)
    )
    return log.publish(TOPIC, records)


def read(log: WrittenLog, wanted: OffsetRange, losses: Losses, batch_bytes: int) -> list[list[int]]:
    """The offsets of each batch."""
    batches = read_range(
        servers(log), wanted, columns=("offset",), losses=losses, batch_bytes=batch_bytes
    )
    return [batch.column(0).to_pylist() for batch in batches]


def test_a_range_is_read_in_batches_of_limited_size(log: WrittenLog) -> None:
    write(log, 1_000)
    found = read(log, OffsetRange(TOPIC, 0, 300, 900), Losses(are_allowed=False), batch_bytes=2_000)
    assert [offset for batch in found for offset in batch] == list(range(300, 900))
    # A record has at least 15 bytes.
    assert 5 < max(map(len, found)) < 2_000 / 15
    assert len(found) > 5


def test_offsets_deleted_before_reading_are_counted_or_an_error(log: WrittenLog) -> None:
    write(log, 50)
    log.delete_before(TOPIC, 0, 20)
    some = Losses(are_allowed=True)
    assert read(log, OffsetRange(TOPIC, 0, 10, 30), some, 1_000_000) == [list(range(20, 30))]
    assert read(log, OffsetRange(TOPIC, 0, 5, 15), some, 1_000_000) == []
    assert read(log, OffsetRange(TOPIC, 0, 70, 80), some, 1_000_000) == []
    assert read(log, OffsetRange("none", 0, 0, 4), some, 1_000_000) == []
    assert some.ranges == [
        OffsetRange(TOPIC, 0, 10, 20),
        OffsetRange(TOPIC, 0, 5, 15),
        OffsetRange(TOPIC, 0, 70, 80),
        OffsetRange("none", 0, 0, 4),
    ]
    assert some.offsets == 34
    for wanted in (OffsetRange(TOPIC, 0, 10, 30), OffsetRange("none", 0, 0, 4)):
        with pytest.raises(DataLost, match=rf"{wanted.topic}-0 \["):
            read(log, wanted, Losses(are_allowed=False), 1_000_000)


def test_an_unreadable_batch_is_skipped_or_an_error(broker: BrokerProcess, log: WrittenLog) -> None:
    write(log, 20)
    with RawConnection(log.bootstrap_servers) as connection:

        def write_batch(count: int, partition: int = 0) -> None:
            records = [NewRecord(n, b"k", b"v", ()) for n in range(count)]
            connection.produce(TOPIC, encode_batch(records), acks=-1, partition=partition)
            assert connection.produced()[1] == 0

        write_batch(5)
        write(log, 10)
        write_batch(1)
        write_batch(1)
        write(log, 3)
        write_batch(3, partition=1)
    broker.stop()
    for batch in stored_batches(broker.data_dir, TOPIC, 0):
        if batch.header.base_offset in (20, 35, 36):
            damage_batch(batch, put_garbage)
    (batch,) = stored_batches(broker.data_dir, TOPIC, 1)
    damage_batch(batch, spoil_last_record)
    broker.serve()
    for batch_bytes in (1, 1_000_000):
        some = Losses(are_allowed=True)
        found = read(log, OffsetRange(TOPIC, 0, 2, 40), some, batch_bytes)
        assert [*chain(*found)] == [*range(2, 20), *range(25, 35), *range(37, 40)]
        assert some.ranges == [
            OffsetRange(TOPIC, 0, 20, 25),
            OffsetRange(TOPIC, 0, 35, 36),
            OffsetRange(TOPIC, 0, 36, 37),
        ]
    # Ranges that share a batch have different parts of it.
    part = Losses(are_allowed=True)
    assert read(log, OffsetRange(TOPIC, 0, 15, 22), part, 1_000_000) == [list(range(15, 20))]
    assert read(log, OffsetRange(TOPIC, 0, 22, 26), part, 1_000_000) == [[25]]
    assert part.ranges == [OffsetRange(TOPIC, 0, 20, 22), OffsetRange(TOPIC, 0, 22, 25)]
    # Records before the damage in a large batch are not counted as missing.
    rest = Losses(are_allowed=True)
    assert read(log, OffsetRange(TOPIC, 1, 0, 3), rest, 1) == [[0], [1]]
    assert rest.ranges == [OffsetRange(TOPIC, 1, 2, 3)]
    strict = Losses(are_allowed=False)
    with pytest.raises(DataLost, match=r"cannot read orders-0 \[20, 25\): batch at 20: varint"):
        read(log, OffsetRange(TOPIC, 0, 2, 38), strict, 1_000_000)
    assert read(log, OffsetRange(TOPIC, 0, 25, 35), strict, 1_000_000) == [list(range(25, 35))]


def test_a_task_reports_errors_of_the_log_and_of_options(log: WrittenLog) -> None:
    write(log, 5)
    whole, strict = OffsetRange(TOPIC, 0, 0, 9), Losses(are_allowed=False)
    with pytest.raises(SourceFailed, match=r"cannot read orders-0 \[0, 9\): .*ends at offset 5"):
        list(read_range(servers(log), whole, columns=("key",), losses=strict, timeout_s=0.3))
    wrong = servers(log) | {"security.protocol": "NONE"}
    with pytest.raises(InvalidOption, match=r"security\.protocol"):
        list(read_range(wrong, whole, columns=("key",), losses=strict))


def test_limits_are_resolved_once(log: WrittenLog) -> None:
    write(log, 30)
    write(log, 10, partition=1)
    log.delete_before(TOPIC, 0, 5)
    strict = Losses(are_allowed=False)
    with RawCluster(servers(log)) as cluster:
        view = LogView(cluster, Subscribed((TOPIC,)), read_committed=False)
        plan = plan_between(view, AtOffsets(EARLIEST), AtOffsets(LATEST), strict)
        assert plan.ranges == [OffsetRange(TOPIC, 0, 5, 30), OffsetRange(TOPIC, 1, 0, 10)]
        assert plan.position[TOPIC].offsets == {0: 30, 1: 10}
        assert plan.position[TOPIC].topic_id is not None
        plan = plan_between(view, AtTimes(1_004), AtTimes(1_012), strict)
        assert plan.ranges == [OffsetRange(TOPIC, 0, 5, 12), OffsetRange(TOPIC, 1, 4, 10)]
        missing = Assigned(frozenset((TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 7))))
        with pytest.raises(InvalidOption, match="assign has partition orders-7: does not exist"):
            plan_between(
                LogView(cluster, missing, read_committed=False),
                *(AtOffsets(EARLIEST), AtOffsets(LATEST), strict),
            )


def test_a_run_continues_after_any_change_of_its_topics(
    log: WrittenLog,
) -> None:
    write(log, 30)
    write(log, 10, partition=1)
    log.make_topic("fresh")
    log.publish("fresh", [Sent(b"x")])
    with RawCluster(servers(log)) as cluster:
        view = LogView(cluster, Subscribed((TOPIC, "fresh")), read_committed=False)
        topic_id = view.topics()[TOPIC].topic_id
        latest = AtOffsets(LATEST)

        def onward(position: TopicPosition, losses: Losses) -> list[OffsetRange]:
            return plan_incremental(
                view, {TOPIC: position}, first_start=latest, losses=losses
            ).ranges

        # A new topic starts at `first_start`, a new partition at 0.
        strict, some = Losses(are_allowed=False), Losses(are_allowed=True)
        known = TopicPosition(topic_id, {0: 12})
        fresh = OffsetRange("fresh", 0, 1, 1)
        new = OffsetRange(TOPIC, 1, 0, 10)
        assert onward(known, strict) == [fresh, OffsetRange(TOPIC, 0, 12, 30), new]

        log.delete_before(TOPIC, 0, 15)
        with pytest.raises(DataLost, match=r"orders-0 \[12, 15\)"):
            onward(known, strict)
        assert onward(known, some) == [fresh, OffsetRange(TOPIC, 0, 15, 30), new]
        assert some.ranges == [OffsetRange(TOPIC, 0, 12, 15)]

        more = TopicPosition(topic_id, {0: 20, 1: 10, 2: 5})
        with pytest.raises(DataLost, match=r"orders-2 .* no longer exists"):
            onward(more, strict)
        assert onward(more, some) == [
            *(fresh, OffsetRange(TOPIC, 0, 20, 30), OffsetRange(TOPIC, 1, 10, 10))
        ]

        # A truncated partition is not read again.
        cut = TopicPosition(topic_id, {0: 31, 1: 10})
        with pytest.raises(TopicReplaced, match="it now ends at 30"):
            onward(cut, strict)
        assert onward(cut, some) == [
            *(fresh, OffsetRange(TOPIC, 0, 30, 30), OffsetRange(TOPIC, 1, 10, 10))
        ]

        # Deleted records of a new partition are a loss.
        log.delete_before(TOPIC, 1, 4)
        with pytest.raises(DataLost, match=r"orders-1 \[0, 4\)"):
            onward(TopicPosition(topic_id, {0: 20}), strict)
        young = Losses(are_allowed=True)
        assert onward(TopicPosition(topic_id, {0: 20}), young) == [
            *(fresh, OffsetRange(TOPIC, 0, 20, 30), OffsetRange(TOPIC, 1, 4, 10))
        ]
        assert young.ranges == [OffsetRange(TOPIC, 1, 0, 4)]

        log.delete_topic(TOPIC)
        log.make_topic(TOPIC)
        write(log, 40)
        with pytest.raises(TopicReplaced, match="orders-0 was read up to 20 with topic id"):
            onward(TopicPosition(topic_id, {0: 20}), strict)
        with pytest.raises(TopicReplaced, match="it now ends at 40"):
            onward(TopicPosition(None, {0: 50}), strict)
        recreated = OffsetRange(TOPIC, 0, 0, 40)
        assert onward(TopicPosition(topic_id, {0: 20}), some) == [fresh, recreated]
        old = read_range(
            *(servers(log), OffsetRange(TOPIC, 0, 0, 30)),
            columns=("key",),
            losses=strict,
            topic_id=topic_id,
        )
        with pytest.raises(DataLost, match="was created again"):
            list(old)
