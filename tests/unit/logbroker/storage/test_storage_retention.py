from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.config import LogConfig
from logbroker.errors import OffsetOutOfRange
from logbroker.storage.domain.retention import (
    Reason,
    RetentionRules,
    SegmentExtent,
    segments_to_delete,
)
from logbroker.storage.partition_log import PartitionLog
from tests.unit.logbroker.storage.storage_content import (
    BASE_MS,
    OpenLog,
    append_all,
    batch,
    make_visible,
    values_of,
)

DAY_MS = 86_400_000
NEVER = -1


def three_segments(*newest_ms: int) -> list[SegmentExtent]:
    """Offsets [0, 10), [10, 20), [20, 30), each of 100 bytes."""
    return [
        SegmentExtent(10 * number, 10 * number + 10, 100, time)
        for number, time in enumerate(newest_ms)
    ]


def gone(
    segments: list[SegmentExtent],
    rules: RetentionRules,
    *,
    log_start_offset: int = 0,
    high_watermark: int = 30,
) -> list[Reason]:
    size_bytes = sum(segment.size_bytes for segment in segments)
    return segments_to_delete(segments, size_bytes, log_start_offset, high_watermark, rules)


def test_retention_by_time_is_exact_to_the_millisecond() -> None:
    segments = three_segments(100, 200, 300)
    assert gone(segments, RetentionRules(1000, NEVER, 1200)) == [Reason.TIME]
    assert gone(segments, RetentionRules(1000, NEVER, 1201)) == [Reason.TIME] * 2
    assert gone(segments, RetentionRules(1000, NEVER, 1301)) == [Reason.TIME] * 3
    assert gone(segments, RetentionRules(NEVER, NEVER, 10**15)) == []


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    assert gone(three_segments(10**12, 0, 0), RetentionRules(1000, NEVER, 5000)) == []


def test_a_segment_is_deleted_by_size_only_if_the_rest_fills_the_limit() -> None:
    segments = three_segments(0, 0, 0)
    bounds = [301, 201, 200, 101, 100, 0, NEVER]
    counts = [len(gone(segments, RetentionRules(NEVER, bound, 0))) for bound in bounds]
    assert counts == [0, 0, 1, 1, 2, 3, 0]


def test_segments_below_the_log_start_offset_are_deleted() -> None:
    segments = three_segments(0, 0, 0)
    rules = RetentionRules(NEVER, NEVER, 0)
    counts = [len(gone(segments, rules, log_start_offset=start)) for start in (0, 9, 10, 29, 30)]
    assert counts == [0, 0, 1, 2, 3]
    assert gone(segments, rules, log_start_offset=10) == [Reason.LOG_START]


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    rules = RetentionRules(0, 0, 10**9)
    segments = three_segments(0, 0, 0)
    counts = [len(gone(segments, rules, high_watermark=mark)) for mark in (0, 9, 10, 29, 30)]
    assert counts == [0, 0, 1, 2, 3]


def test_an_empty_segment_stays() -> None:
    rules = RetentionRules(0, 0, 10**9)
    assert gone([SegmentExtent(0, 0, 0, 0)], rules, high_watermark=0) == []


@given(st.lists(st.integers(0, 500), min_size=3, max_size=3), st.integers(0, 400))
def test_retention_by_size_keeps_at_least_the_limit(times: list[int], bound: int) -> None:
    segments = three_segments(*times)
    left = 300 - 100 * len(gone(segments, RetentionRules(NEVER, bound, 0)))
    assert left >= min(bound, 300)
    assert left - 100 < bound or left == 0


def filled(new_log: OpenLog, **settings: int | str) -> PartitionLog:
    log = new_log(segment_bytes=1024, **settings)
    append_all(
        log,
        [
            batch(b"%d" % number + b"." * 400, timestamps=[BASE_MS + number * DAY_MS])
            for number in range(6)
        ],
    )
    make_visible(log)
    return log


def test_files_are_renamed_at_once_and_removed_by_the_caller(
    new_log: OpenLog, folder: Path
) -> None:
    log = filled(new_log, retention_ms=DAY_MS, segment_ms=100 * DAY_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    (deleted,) = log.apply_retention(BASE_MS + 3 * DAY_MS)
    assert (deleted.base_offset, deleted.reason) == (0, Reason.TIME)
    assert sorted(path.name for path in deleted.paths) == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
    ]
    assert sorted(folder.glob("*.deleted")) == sorted(deleted.paths)
    assert log.log_start_offset == 2
    assert [value[:1] for value in values_of(log) if value] == [b"2", b"3", b"4", b"5"]
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 1, whole_batch=True)


def test_the_active_segment_is_deleted_too_and_offsets_continue(
    new_log: OpenLog, reopened: OpenLog
) -> None:
    log = filled(new_log, retention_ms=DAY_MS, segment_ms=100 * DAY_MS)
    assert len(log.apply_retention(BASE_MS + 100 * DAY_MS)) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (6, 6, 0)
    assert log.append(batch(b"x"), BASE_MS) == 6
    log.write()
    make_visible(log)
    assert values_of(log) == [b"x"]
    assert reopened().log_start_offset == 6


def test_unflushed_records_are_kept(new_log: OpenLog) -> None:
    log = filled(new_log, retention_ms=0, segment_ms=100 * DAY_MS)
    append_all(log, [batch(b"x", timestamps=[BASE_MS])])
    assert len(log.apply_retention(BASE_MS + 100 * DAY_MS)) == 2
    assert log.log_start_offset == 4


def test_segments_without_timestamps_age_by_their_file(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024, retention_ms=DAY_MS)
    append_all(log, [batch(b"x" * 400, timestamps=[-1]) for _ in range(6)])
    make_visible(log)
    written_ms = log.segments[0].path.stat().st_mtime_ns // 1_000_000
    assert log.apply_retention(written_ms) == []
    assert len(log.apply_retention(written_ms + DAY_MS + 60_000)) == 3


def test_a_longer_retention_applies_at_the_next_check(new_log: OpenLog) -> None:
    log = filled(new_log, retention_ms=DAY_MS, segment_ms=100 * DAY_MS)
    log.config = LogConfig(retention_ms=50 * DAY_MS)
    assert log.apply_retention(BASE_MS + 3 * DAY_MS) == []


def test_deleted_records_are_unreadable_and_their_segments_deleted_at_the_next_check(
    new_log: OpenLog,
) -> None:
    log = filled(new_log, retention_ms=NEVER, segment_ms=100 * DAY_MS)
    assert log.delete_records_before(3) == 3
    assert log.delete_records_before(1) == 3
    for offset in (-1, 7):
        with pytest.raises(OffsetOutOfRange, match="high watermark is 6"):
            log.delete_records_before(offset)
    assert [value[:1] for value in values_of(log) if value] == [b"3", b"4", b"5"]
    assert [one.reason for one in log.apply_retention(BASE_MS)] == [Reason.LOG_START]
    assert log.log_start_offset == 3


def test_deleting_up_to_the_high_watermark_empties_the_log(new_log: OpenLog) -> None:
    log = filled(new_log, retention_ms=NEVER, segment_ms=100 * DAY_MS)
    log.delete_records_before(6)
    assert values_of(log) == []
    assert len(log.apply_retention(BASE_MS)) == 3
    assert log.size_bytes == 0
