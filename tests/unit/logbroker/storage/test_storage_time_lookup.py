from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.config import LogConfig
from logbroker.records.compression import Codec
from logbroker.storage.log_view import TimestampOffset
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, create_folder, load_folder
from tests.support.property_examples import examples
from tests.unit.logbroker.storage.storage_content import (
    BASE_MS,
    TOPIC_ID,
    OpenLog,
    append_all,
    batch,
    make_visible,
    records_of,
)

NOW_MS = 1_700_000_000_000


def expected(log: PartitionLog, timestamp_ms: int) -> TimestampOffset | None:
    return next(
        (
            TimestampOffset(record.timestamp_ms, record.offset, 0)
            for record in records_of(log)
            if record.timestamp_ms >= timestamp_ms
        ),
        None,
    )


def expected_newest(log: PartitionLog) -> TimestampOffset | None:
    records = [record for record in records_of(log) if record.timestamp_ms >= 0]
    if not records:
        return None
    newest = max(records, key=lambda record: (record.timestamp_ms, -record.offset))
    return TimestampOffset(newest.timestamp_ms, newest.offset, 0)


@pytest.mark.parametrize("codec", Codec)
def test_the_record_is_found_inside_a_batch_of_every_codec(new_log: OpenLog, codec: Codec) -> None:
    log = new_log()
    times = [BASE_MS + 10 * number for number in range(10)]
    append_all(log, [batch(*[b"v"] * 10, timestamps=times, codec=codec)])
    make_visible(log)
    assert log.offset_for_time(BASE_MS + 41) == (BASE_MS + 50, 5, 0)
    assert log.offset_for_time(BASE_MS + 90) == (BASE_MS + 90, 9, 0)
    assert log.offset_for_time(BASE_MS + 91) is None
    assert log.offset_of_max_timestamp() == (BASE_MS + 90, 9, 0)


def test_unflushed_records_are_not_found(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a", timestamps=[BASE_MS])])
    make_visible(log)
    append_all(log, [batch(b"b", timestamps=[BASE_MS + 5])])
    assert log.offset_for_time(BASE_MS + 1) is None
    assert log.offset_of_max_timestamp() == (BASE_MS, 0, 0)


def test_an_empty_log_has_no_times(new_log: OpenLog) -> None:
    log = new_log()
    assert log.offset_for_time(0) is None
    assert log.offset_of_max_timestamp() is None


def test_records_without_a_time_have_no_newest(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a", timestamps=[-1]) for _ in range(3)])
    make_visible(log)
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_time(0) is None


def test_a_record_below_the_log_start_offset_is_skipped(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024)
    times = [50, 10, 20, 60, 30]
    append_all(log, [batch(b"x" * 400, timestamps=[BASE_MS + time]) for time in times])
    make_visible(log)
    log.delete_records_before(1)
    assert log.offset_for_time(BASE_MS + 15) == (BASE_MS + 20, 2, 0)
    assert log.offset_for_time(BASE_MS + 40) == (BASE_MS + 60, 3, 0)
    log.delete_records_before(4)
    assert log.offset_for_time(BASE_MS) == (BASE_MS + 30, 4, 0)
    assert log.offset_of_max_timestamp() == (BASE_MS + 30, 4, 0)


def test_append_time_gives_the_first_record_of_the_batch(new_log: OpenLog) -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    append_all(log, [batch(b"a", b"b")], NOW_MS)
    append_all(log, [batch(b"c", b"d")], NOW_MS + 1)
    make_visible(log)
    assert log.offset_for_time(NOW_MS + 1) == (NOW_MS + 1, 2, 0)
    assert log.offset_of_max_timestamp() == (NOW_MS + 1, 2, 0)


def test_a_search_behind_a_long_stretch_of_old_times_reads_little(new_log: OpenLog) -> None:
    log = new_log()
    late = BASE_MS + 10**6
    append_all(log, [batch(b"x" * 100, timestamps=[BASE_MS + 1]) for _ in range(2000)])
    append_all(log, [batch(b"x" * 100, timestamps=[late])])
    append_all(log, [batch(b"x" * 100, timestamps=[BASE_MS]) for _ in range(100)])
    make_visible(log)
    segment = log.segments[0]
    found = segment.find(2000, segment.size_bytes)
    assert found is not None
    place, _ = found
    assert place - 5000 < segment.position_before_time(late - 5) <= place
    assert log.offset_for_time(late - 5) == (late, 2000, 0)
    assert log.offset_of_max_timestamp() == (late, 2000, 0)


Batches = list[tuple[list[int], int, Codec]]

TIMES = st.integers(0, 60).map(lambda time: BASE_MS + time)
BATCHES = st.lists(
    st.tuples(
        st.lists(TIMES, min_size=1, max_size=3),
        st.sampled_from([1, 300, 2000, 5000]),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.SNAPPY]),
    ),
    min_size=1,
    max_size=60,
)


def fill(folder: Path, batches: Batches, segment_bytes: int) -> PartitionLog:
    config = LogConfig(segment_bytes=segment_bytes)
    log = PartitionLog(folder, "t", 0, config, create_folder(folder, TOPIC_ID))
    append_all(
        log,
        [
            batch(*[b"x" * size] * len(times), timestamps=times, codec=codec)
            for times, size, codec in batches
        ],
    )
    return log


@examples(60)
@given(BATCHES, st.sampled_from([16_000, 1 << 30]), st.data())
def test_every_time_is_found_exactly_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory,
    batches: Batches,
    segment_bytes: int,
    data: st.DataObject,
) -> None:
    log = fill(tmp_path_factory.mktemp("log") / "t-0", batches, segment_bytes)
    make_visible(log)
    log.delete_records_before(data.draw(st.integers(0, log.high_watermark)))
    for time_ms in range(BASE_MS - 1, BASE_MS + 62):
        assert log.offset_for_time(time_ms) == expected(log, time_ms)


@examples(60)
@given(BATCHES, BATCHES, st.sampled_from([16_000, 1 << 30]))
def test_the_newest_record_is_exact_below_the_high_watermark(
    tmp_path_factory: pytest.TempPathFactory,
    flushed: Batches,
    unflushed: Batches,
    segment_bytes: int,
) -> None:
    log = fill(tmp_path_factory.mktemp("log") / "t-0", flushed, segment_bytes)
    make_visible(log)
    append_all(log, [batch(*[b"x" * 900] * len(one), timestamps=one) for one, _, _ in unflushed])
    assert log.offset_of_max_timestamp() == expected_newest(log)
    for time_ms in range(BASE_MS, BASE_MS + 61, 7):
        assert log.offset_for_time(time_ms) == expected(log, time_ms)


@examples(20)
@given(BATCHES, st.booleans())
def test_every_time_is_found_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, batches: Batches, is_clean: bool
) -> None:
    folder = tmp_path_factory.mktemp("log") / "t-0"
    log = fill(folder, batches, 16_000)
    make_visible(log)
    end_offset = log.log_end_offset
    if is_clean:
        log.close()
    known = KnownOffsets(end_offset if is_clean else 0, 0)
    loaded = load_folder(folder, known, NOW_MS, is_clean=is_clean)
    assert loaded.was_recovered is not is_clean
    again = PartitionLog(folder, "t", 0, LogConfig(), loaded.log)
    for time_ms in range(BASE_MS - 1, BASE_MS + 62, 3):
        assert again.offset_for_time(time_ms) == expected(log, time_ms)
    assert again.offset_of_max_timestamp() == expected_newest(log)
