"""Positions, pauses and names of partitions."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.mirror.domain.partitions import (
    RETRY_MAX_S,
    RETRY_S,
    PartitionBackoff,
    PartitionProgress,
    TopicAndPartition,
    format_partitions,
)
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.sender import PRODUCER_KNOWN_S, PartitionCopy

PLACE = ("topic", 0)
TIME_MS = 1_763_712_000_000


def test_a_position_is_not_known_before_the_first_record() -> None:
    progress = PartitionProgress(None)
    assert progress.position is None
    progress.skip_to(7)
    assert progress.position == 7


def send(progress: PartitionProgress, offset: int) -> None:
    progress.record_sent(offset, TIME_MS + offset, 200 + offset, b"%d" % offset)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=20), st.data())
def test_no_position_is_above_a_record_in_flight(gaps: list[int], data: st.DataObject) -> None:
    offsets = list(accumulate(gaps))
    progress = PartitionProgress(0)
    for offset in offsets:
        send(progress, offset)
    left = offsets
    while left:
        assert progress.position == progress.offset_in_flight(0) == left[0]
        assert progress.offset_in_flight(len(left) - 1) == offsets[-1]
        count = data.draw(st.integers(1, len(left)))
        taken, left = left[:count], left[count:]
        assert progress.take_acknowledged(count) == (
            [TIME_MS + offset for offset in taken],
            [200 + offset for offset in taken],
            [b"%d" % offset for offset in taken],
        )
    assert progress.is_idle
    assert progress.position == offsets[-1] + 1


def test_skipped_records_wait_for_records_in_flight_before_them() -> None:
    progress = PartitionProgress(3)
    send(progress, 3)
    progress.skip_to(5)
    assert progress.position == 3
    progress.take_acknowledged(1)
    assert progress.position == 5


def test_the_first_record_and_one_after_a_silence_are_sent_alone() -> None:
    copy = PartitionCopy(*PLACE, 0, MirrorCounts())
    now_s = 1_000_000.0
    assert copy.can_send(now_s)
    send(copy.progress, 0)
    assert not copy.can_send(now_s)
    copy.progress.take_acknowledged(1)
    copy.acknowledged_s = now_s
    send(copy.progress, 1)
    assert copy.can_send(now_s + PRODUCER_KNOWN_S - 1)
    assert not copy.can_send(now_s + PRODUCER_KNOWN_S)
    copy.progress.take_acknowledged(1)
    assert copy.can_send(now_s + PRODUCER_KNOWN_S)


def test_repeated_failures_pause_a_partition_for_longer() -> None:
    backoff = PartitionBackoff()
    assert not backoff.is_paused(PLACE, 0.0)
    times = [backoff.pause(PLACE, 0.0, has_moved=False) for _ in range(8)]
    assert times[:3] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    assert times[-1] == RETRY_MAX_S
    assert backoff.is_paused(PLACE, RETRY_MAX_S - 0.1)
    assert not backoff.is_paused(PLACE, RETRY_MAX_S)
    assert not backoff.is_paused(("topic", 1), 0.0)


def test_progress_resets_the_pause() -> None:
    backoff = PartitionBackoff()
    backoff.pause(PLACE, 0.0, has_moved=False)
    backoff.pause(PLACE, 0.0, has_moved=False)
    assert backoff.pause(PLACE, 0.0, has_moved=True) == RETRY_S


@pytest.mark.parametrize(
    ("topic_partitions", "text"),
    [
        ([], ""),
        ([("clicks", 3)], "clicks-3"),
        ([("clicks", 2), ("clicks", 0), ("clicks", 1)], "clicks-0..2"),
        ([("clicks", 0), ("clicks", 2), ("clicks", 3)], "clicks-0,clicks-2..3"),
        ([("logs", 1), ("clicks", 0)], "clicks-0,logs-1"),
        ([("clicks-0", 1), ("clicks", 0)], "clicks-0,clicks-0-1"),
    ],
)
def test_consecutive_partitions_are_formatted_as_ranges(
    topic_partitions: list[TopicAndPartition], text: str
) -> None:
    assert format_partitions(topic_partitions) == text
