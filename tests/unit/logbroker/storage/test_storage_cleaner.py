"""Compaction of a log on disk: what stays, where it stays, and what a crash leaves."""

import random
import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from logbroker.cli.dump import SegmentDump
from logbroker.config import LogConfig
from logbroker.errors import InvalidRecord
from logbroker.records.batch import NO_TIMESTAMP, crc_matches, iter_batches
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, Record, encode_batch
from logbroker.storage.cleaner import CleaningStopped, SegmentCleaner, find_dirty_part
from logbroker.storage.domain.compaction import ENTRY_BYTES, KeyOffsets
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, create_folder, load_folder
from tests.unit.logbroker.storage.storage_content import (
    BASE_MS,
    TOPIC_ID,
    OpenLog,
    content,
    file_content,
    make_visible,
    records_of,
)

T = TypeVar("T")

NOW_MS = BASE_MS + 1_000_000
RETENTION_MS = 5_000
BUFFER_BYTES = 1 << 20

Entry = tuple[bytes | None, bytes | None]


class DirectHost:
    """Runs the calls of a cleaner at once, and can stop it before one of them."""

    def __init__(self, stop_before: int = -1) -> None:
        self.deleted: list[Path] = []
        self.calls = 0
        self._stop_before = stop_before

    def pause(self) -> None:
        pass

    def on_loop(self, call: Callable[[], T]) -> T:
        if 0 <= self._stop_before <= self.calls:
            raise CleaningStopped("test")
        self.calls += 1
        return call()

    def is_open(self, log: PartitionLog) -> bool:
        return log.folder.exists()

    def write_checkpoints(self) -> None:
        pass

    def delete_later(self, log: PartitionLog, paths: Sequence[Path]) -> None:
        assert log.folder.exists()
        self.deleted += paths


def keyed_batch(*entries: Entry, at_ms: int = BASE_MS, **options: Any) -> memoryview:
    records = [NewRecord(at_ms + n, key, value) for n, (key, value) in enumerate(entries)]
    return memoryview(bytearray(encode_batch(records, **options)))


def append(log: PartitionLog, *batches: memoryview, now_ms: int = BASE_MS) -> None:
    for batch in batches:
        log.append(batch, now_ms)
        log.write()
    make_visible(log)


def clean(
    log: PartitionLog,
    until: int = 0,
    *,
    now_ms: int = NOW_MS,
    buffer_bytes: int = BUFFER_BYTES,
    host: DirectHost | None = None,
) -> int:
    """Compact what is due, and return the offset up to which the log is compacted."""
    part = find_dirty_part(log, until, now_ms)
    assert part is not None
    cleaner = SegmentCleaner(log, host or DirectHost(), buffer_bytes, now_ms)
    return cleaner.clean(part).end_offset


def entries_of(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records_of(log)]


def assert_sound(log: PartitionLog) -> None:
    """Every file of the log can be dumped without a problem, and segments join each other."""
    for segment, following in pairwise(log.segments):
        assert SegmentDump(segment.path, with_records=True).run() == 0
        *_, (last, _) = iter_batches(file_content(segment))
        assert last.next_offset == following.base_offset


COMPACT: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "delete_retention_ms": RETENTION_MS,
    "min_cleanable_dirty_ratio": 0.0,
}


OLDER = LogConfig(segment_bytes=1024)
"""The settings of a log before it is compacted: records may have no key."""


def test_the_last_record_of_each_key_stays_at_its_offset(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    for number in range(60):
        append(log, keyed_batch((b"key-%d" % (number % 4), b"value-%d" % number)))
    active = log.segments[-1].base_offset
    assert clean(log) == active
    found = entries_of(log)
    assert [entry for entry in found if entry[0] < active] == [
        (number, b"key-%d" % (number % 4), b"value-%d" % number)
        for number in range(active - 4, active)
    ]
    assert [offset for offset, _, _ in found if offset >= active] == list(range(active, 60))
    assert_sound(log)
    clean(log)  # what the first one left is small enough for one segment
    assert entries_of(log) == found
    assert [segment.base_offset for segment in log.segments] == [0, active]
    assert_sound(log)


def test_records_of_a_batch_are_removed_one_by_one(new_log: OpenLog) -> None:
    for codec in Codec:
        log = new_log(**COMPACT)
        entries = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", None)]
        append(log, keyed_batch(*entries, codec=codec), keyed_batch((b"d", b"x" * 900)))
        append(log, keyed_batch((b"e", b"x")))
        before = [record for record in records_of(log) if record.offset != 0]
        assert clean(log) == 5
        assert records_of(log) == before
        header, batch = next(iter_batches(file_content(log.segments[0])))
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 3, 3)
        assert header.compression == codec
        assert crc_matches(batch, header.crc)
        assert_sound(log)
        shutil.rmtree(log.folder)


def test_a_foreign_reader_reads_a_compacted_segment(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    for number in range(60):
        append(log, keyed_batch((b"%d" % (number % 7), b"value"), (b"x", None)))
    clean(log)
    found = []
    records = MemoryRecords(b"".join(map(file_content, log.segments[:-1])))
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(record.offset, record.key, record.value) for record in batch]
    active = log.segments[-1].base_offset
    assert found == [entry for entry in entries_of(log) if entry[0] < active]


def test_a_tombstone_stays_until_the_delete_horizon(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    append(log, keyed_batch((b"a", b"1"), (b"a", None), (b"b", b"2"), at_ms=BASE_MS + 7))
    append(log, keyed_batch((b"c", b"x" * 900)), keyed_batch((b"d", b"3")))

    clean(log)
    header, _ = next(iter_batches(file_content(log.segments[0])))
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert [(record.offset, record.timestamp_ms, record.value) for record in records_of(log)] == [
        (1, BASE_MS + 8, None),
        (2, BASE_MS + 9, b"2"),
        (3, BASE_MS, b"x" * 900),
        (4, BASE_MS, b"3"),
    ]

    clean(log, now_ms=NOW_MS + RETENTION_MS - 1)
    assert entries_of(log)[0] == (1, b"a", None)
    clean(log, now_ms=NOW_MS + RETENTION_MS)
    assert entries_of(log)[0] == (2, b"b", b"2")
    (lookup,) = [log.offset_for_time(BASE_MS + 8)]
    assert lookup is not None
    assert (lookup.offset, lookup.timestamp_ms) == (2, BASE_MS + 9)


def test_a_record_without_a_key_is_rejected(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    for codec in Codec:
        with pytest.raises(InvalidRecord, match="key"):
            log.append(keyed_batch((b"a", b"1"), (None, b"2"), codec=codec), NOW_MS)
    append(log, keyed_batch((b"a", b"1"), (b"", b"2")))
    assert log.log_end_offset == 2


def test_older_records_without_a_key_are_removed(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024)
    append(log, keyed_batch((None, b"1"), (b"", b"2")), keyed_batch((b"c", b"x" * 900)))
    append(log, keyed_batch((b"d", b"3")))
    log.config = LogConfig(**COMPACT)
    clean(log)
    assert [offset for offset, _, _ in entries_of(log)] == [1, 2, 3]


def test_an_unreadable_batch_stays_and_stops_nothing(
    new_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(**COMPACT)
    append(log, keyed_batch((b"a", b"1")), keyed_batch((b"a", b"2")))
    append(log, keyed_batch((b"c", b"x" * 900)), keyed_batch((b"a", b"3")))
    with log.segments[0].path.open("r+b") as file:
        file.seek(69)
        file.write(b"\xff")
    kept = file_content(log.segments[0])[:70]
    clean(log)
    assert file_content(log.segments[0])[:70] == kept
    assert "keeps an unreadable batch partition=events-0 offsets=0..0" in caplog.text


def test_the_last_batch_of_a_producer_stays_if_only_its_header(
    new_log: OpenLog, folder: Path
) -> None:
    log = new_log(**COMPACT)
    producer = {"producer_id": 9, "producer_epoch": 0}
    append(log, keyed_batch((b"a", b"1"), base_sequence=0, **producer))
    append(log, keyed_batch((b"a", b"2"), base_sequence=1, **producer))
    append(log, keyed_batch((b"a", b"3")), keyed_batch((b"c", b"x" * 900)))
    append(log, keyed_batch((b"d", b"3")))
    clean(log)
    headers = [header for header, _ in iter_batches(file_content(log.segments[0]))]
    assert [(each.base_offset, each.record_count, each.producer_id) for each in headers] == [
        (1, 0, 9),
        (2, 1, -1),
    ]
    for snapshot in log.folder.glob("*.snapshot"):
        snapshot.unlink()
    loaded = load_folder(folder, KnownOffsets(0, dense_from=5), NOW_MS, is_clean=False)
    again = PartitionLog(folder, "events", 0, LogConfig(), loaded.log)
    retry = keyed_batch((b"a", b"2"), base_sequence=1, **producer)
    assert again.append(retry, NOW_MS) == 1


def test_a_lookup_by_time_passes_over_a_batch_without_records(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    value = random.Random(1).randbytes(900)
    append(log, keyed_batch((b"a", value), at_ms=BASE_MS + 500, codec=Codec.ZSTD))
    append(log, keyed_batch((b"a", b"x" * 900), at_ms=BASE_MS + 100))
    append(log, keyed_batch((b"b", b"x" * 900), at_ms=BASE_MS))
    clean(log)
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (1, BASE_MS + 100)
    headers = [header for header, _ in iter_batches(file_content(log.segments[0]))]
    assert [(each.record_count, each.max_timestamp) for each in headers] == [(0, NO_TIMESTAMP)]
    assert headers[0].compression == Codec.NONE  # librdkafka cannot decompress nothing
    span = log.read(0, 1 << 20, whole_batch=True)
    assert span is not None
    assert (len(content(span)), span.next_offset) == (61, 1)


def test_young_records_are_not_compacted(new_log: OpenLog) -> None:
    log = new_log(**{**COMPACT, "min_compaction_lag_ms": 1_000})
    for second in range(4):
        append(log, keyed_batch((b"a", b"x" * 900), at_ms=BASE_MS + second * 1_000))
    assert find_dirty_part(log, 0, BASE_MS + 999) is None
    assert clean(log, now_ms=BASE_MS + 2_500) == 2
    # The record at 2 is newer, but it is not compacted yet.
    assert [offset for offset, _, _ in entries_of(log)] == [1, 2, 3]


def test_a_log_is_compacted_when_enough_of_it_is_new_or_old(new_log: OpenLog) -> None:
    log = new_log(**{**COMPACT, "min_cleanable_dirty_ratio": 0.5, "segment_bytes": 4096})
    for number in range(40):
        append(log, keyed_batch((b"%d" % number, b"x" * 900)))
    until = clean(log)
    for _ in range(8):
        append(log, keyed_batch((b"0", b"x" * 900)))
    assert find_dirty_part(log, until, NOW_MS) is None
    log.config = LogConfig(
        **{
            **COMPACT,
            "min_cleanable_dirty_ratio": 0.5,
            "segment_bytes": 4096,
            "max_compaction_lag_ms": 1_000,
        }
    )
    assert find_dirty_part(log, until, BASE_MS + 1_000) is None
    assert find_dirty_part(log, until, BASE_MS + 1_001) is not None


def test_small_segments_are_merged_up_to_the_segment_size(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    for number in range(100):
        append(log, keyed_batch((b"%d" % (number % 3), b"x" * 200)))
    before = len(log.segments)
    log.config = LogConfig(**{**COMPACT, "segment_bytes": 4096})
    until = clean(log)
    merged = len(log.segments)
    assert merged < before / 3
    clean(log)
    assert until == log.segments[-1].base_offset
    assert [segment.base_offset for segment in log.segments] == [0, until]
    assert {path.suffix for path in log.folder.iterdir()} >= {".deleted", ".log"}


def test_more_keys_than_memory_take_several_passes(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    for number in range(120):
        append(log, keyed_batch((b"%d" % (number % 40), b"%d" % number)))
    active = log.segments[-1].base_offset
    cleaner = SegmentCleaner(log, DirectHost(), 10 * ENTRY_BYTES, NOW_MS)
    part = find_dirty_part(log, 0, NOW_MS)
    assert part is not None
    cleaned = cleaner.clean(part)
    assert cleaned.passes == pytest.approx(active / 10, abs=1)
    found = [offset for offset, _, _ in entries_of(log)]
    assert found == list(range(active - 40, 120))


def test_the_table_of_keys_stays_within_its_memory() -> None:
    tracemalloc.start()
    try:
        keys = KeyOffsets(1 << 20, b"secret")
        number = 0
        while keys.has_room(1):
            batch = keyed_batch((b"a key of thirty-two bytes %06d" % number, b"value"))
            header, whole = next(iter_batches(batch))
            keys.add_batch(header._replace(base_offset=number + 2**40), bytes(whole))
            number += 1
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
    assert number == (1 << 20) // ENTRY_BYTES


def test_a_read_with_an_older_view_sees_the_replaced_segment(new_log: OpenLog) -> None:
    log = new_log(**COMPACT)
    for number in range(30):
        append(log, keyed_batch((b"a", b"value-%d" % number)))
    view = log.view
    expected = [file_content(segment) for segment in view.segments]
    host = DirectHost()
    clean(log, host=host)
    found = [
        content(log._span(view, segment.base_offset, 1 << 20, False))
        for segment in view.segments[:-1]
    ]
    assert found == expected[:-1]
    assert all(path.name.endswith(".deleted") for path in host.deleted)
    assert view.offset_for_time(BASE_MS) is not None


def test_retention_by_time_applies_only_where_the_policy_says_so(new_log: OpenLog) -> None:
    log = new_log(**{**COMPACT, "retention_ms": 1})
    for number in range(30):
        append(log, keyed_batch((b"%d" % number, b"x" * 100)))
    assert log.apply_retention(NOW_MS) == []
    log.config = LogConfig(**{**COMPACT, "retention_ms": 1, "cleanup_policy": "compact,delete"})
    assert log.apply_retention(NOW_MS) != []


def test_the_active_segment_rolls_before_its_records_are_too_old(new_log: OpenLog) -> None:
    log = new_log(cleanup_policy="compact", max_compaction_lag_ms=1_000)
    for number in range(3):
        append(log, keyed_batch((b"a", b"x"), at_ms=BASE_MS + 700 * number))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"a long key, which is stored as a hash"])
values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"x" * 150]))
batches = st.lists(st.lists(st.tuples(keys, values), min_size=1, max_size=5), max_size=30)


@given(
    batches,
    st.sampled_from(Codec),
    st.sampled_from([1, 3 * ENTRY_BYTES, BUFFER_BYTES]),
    st.integers(1, 3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_any_sequence_keeps_exactly_the_last_record_of_each_key(
    tmp_path: Path, sent: list[list[Entry]], codec: Codec, buffer_bytes: int, runs: int
) -> None:
    folder = tmp_path / "events-0"
    shutil.rmtree(folder, ignore_errors=True)
    config = LogConfig(**COMPACT)
    log = PartitionLog(folder, "events", 0, OLDER, create_folder(folder, TOPIC_ID))
    append(log, *(keyed_batch(*entries, codec=codec) for entries in sent))
    everything = records_of(log)
    log.config = config
    active = log.segments[-1].base_offset
    for run in range(runs):
        if find_dirty_part(log, 0, NOW_MS):
            assert clean(log, now_ms=NOW_MS + run, buffer_bytes=buffer_bytes) == active
    assert records_of(log) == kept_of(everything, active)
    # Every offset can be read from, and finds the next record that is left.
    left = records_of(log)
    for offset in range(log.log_end_offset):
        span = log.read(offset, 1, whole_batch=True)
        assert span is not None
        assert span.next_offset > offset
    assert_sound(log)
    log.close()
    known = KnownOffsets(log.log_end_offset, 0, log.log_end_offset)
    for is_clean in (True, False):
        loaded = load_folder(folder, known, NOW_MS, is_clean=is_clean)
        assert loaded.dropped_bytes == 0
        again = PartitionLog(folder, "events", 0, config, loaded.log)
        assert records_of(again) == left


def kept_of(records: Sequence[Record], active: int) -> list[Record]:
    """What compaction keeps, by its definition: tombstones are not expired here."""
    last = {record.key: record.offset for record in records if record.offset < active}
    return [
        record
        for record in records
        if record.offset >= active or (record.key is not None and last[record.key] == record.offset)
    ]


@pytest.mark.parametrize("step", range(22))
def test_a_crash_at_any_step_of_a_replacement_keeps_every_last_record(
    folder: Path, new_log: OpenLog, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    log = new_log(**COMPACT)
    for number in range(60):
        append(log, keyed_batch((b"key-%d" % (number % 4), b"value-%d" % number)))
    log.config = LogConfig(**{**COMPACT, "segment_bytes": 2048})
    active = log.segments[-1].base_offset
    expected = [entry for entry in entries_of(log) if entry[0] >= active - 4]

    crash_after(step, monkeypatch)
    try:
        clean(log)
    except CrashedError:
        pass
    else:
        assert step > 10
    monkeypatch.undo()

    known = KnownOffsets(log.log_end_offset, 0, log.log_end_offset)
    loaded = load_folder(folder, known, NOW_MS, is_clean=False)
    assert loaded.dropped_bytes == 0
    again = PartitionLog(folder, "events", 0, LogConfig(**COMPACT), loaded.log)
    assert again.log_end_offset == 60
    found = entries_of(again)
    assert [entry for entry in found if entry in expected] == expected
    assert not {path.suffix for path in folder.iterdir()} & {".cleaned", ".swap", ".deleted"}
    assert_sound(again)
    clean(again, buffer_bytes=BUFFER_BYTES)
    assert entries_of(again) == expected


class CrashedError(BaseException):
    """The process is gone; nothing after this happens."""


def crash_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next `steps` changes of names happen, and no other."""
    left = [steps]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **options: Any) -> Any:
            if left[0] <= 0:
                raise CrashedError
            left[0] -= 1
            return change(*args, **options)

        return count

    for name in ("rename", "unlink"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))


def test_a_stop_before_a_replacement_changes_nothing(new_log: OpenLog, folder: Path) -> None:
    log = new_log(**COMPACT)
    for number in range(30):
        append(log, keyed_batch((b"a", b"value-%d" % number)))
    before = entries_of(log)
    with pytest.raises(CleaningStopped):
        clean(log, host=DirectHost(stop_before=0))
    assert entries_of(log) == before
    loaded = load_folder(folder, KnownOffsets(30, 0, 30), NOW_MS, is_clean=False)
    assert loaded.log.end_offset == 30
    assert not list(folder.glob("*.cleaned"))


def test_segments_that_retention_deleted_are_not_replaced(new_log: OpenLog, folder: Path) -> None:
    log = new_log(**COMPACT)
    for number in range(30):
        append(log, keyed_batch((b"a", b"value-%d" % number)))

    class RetentionFirst(DirectHost):
        def on_loop(self, call: Callable[[], T]) -> T:
            if self.calls == 1:
                log.delete_records_before(log.segments[1].base_offset)
                assert len(log.apply_retention(NOW_MS)) == 1
            return super().on_loop(call)

    with pytest.raises(CleaningStopped, match="deleted meanwhile"):
        clean(log, host=RetentionFirst())
    assert not [path for path in folder.iterdir() if path.suffix in {".cleaned", ".swap"}]
    assert log.log_start_offset == log.segments[0].base_offset
    assert entries_of(log)[0][0] == log.log_start_offset
