"""Which partitions of a group make no progress, and which errors are about data."""

from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from app.log.unreadable import PartitionReads
from logbroker.client.stalls import STALLED_AFTER_S

DAMAGED = KafkaError(KafkaError._BAD_MSG)
RESET = KafkaError(KafkaError._AUTO_OFFSET_RESET)


class LogEnds:
    """What a client knows of the ends of two partitions."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    def get_watermark_offsets(self, place: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, self.ends[place.partition]


def reads(**positions: int) -> PartitionReads:
    found = PartitionReads("events", {"bootstrap.servers": "127.0.0.1:1"}, lambda _: None)
    found.positions |= {int(name[1:]): position for name, position in positions.items()}
    return found


def measure(found: PartitionReads, ends: LogEnds, now_s: float, *paused: int) -> dict[int, int]:
    return found.measure_lags(cast("Consumer", ends), paused, now_s)


def test_a_partition_with_records_and_without_progress_is_stalled_after_a_minute() -> None:
    found, ends = reads(p0=10, p1=20), LogEnds(15, 20)
    assert measure(found, ends, 0.0) == {0: 5, 1: 0}
    measure(found, ends, STALLED_AFTER_S - 1)
    assert found.stalled == frozenset()
    measure(found, ends, STALLED_AFTER_S)
    assert found.stalled == {0}
    found.positions[0] = 11
    measure(found, ends, STALLED_AFTER_S + 2)
    assert found.stalled == frozenset()


def test_a_paused_partition_is_not_stalled_because_its_receiver_is_slow() -> None:
    found, ends = reads(p0=10), LogEnds(15)
    for now_s in (0.0, STALLED_AFTER_S, 2 * STALLED_AFTER_S):
        assert measure(found, ends, now_s, 0) == {0: 5}
    assert found.stalled == frozenset()


def test_a_revoked_partition_is_not_stalled() -> None:
    found, ends = reads(p0=10), LogEnds(15)
    measure(found, ends, 0.0)
    measure(found, ends, STALLED_AFTER_S)
    found.forget(0)
    assert found.stalled == frozenset()
    assert measure(found, ends, STALLED_AFTER_S + 2) == {}


def test_only_what_came_before_an_error_is_kept() -> None:
    found = reads(p0=10, p1=20)
    events: dict[int, list[Any]] = {0: ["a", "b"]}
    assert found.fail(0, DAMAGED, events)
    assert found.fail(1, RESET, events)
    events[0].append("read again")
    events[1] = ["from a wrong offset"]
    assert found.fail(0, RESET, events)
    found.drop_unreliable(events)
    assert events == {0: ["a", "b"]}


def test_other_errors_and_partitions_are_not_about_data() -> None:
    found = reads(p0=10)
    assert not found.fail(0, KafkaError(KafkaError._TRANSPORT), {})
    assert not found.fail(7, DAMAGED, {})
    assert not found.fail(None, DAMAGED, {})
