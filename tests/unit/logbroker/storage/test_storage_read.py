from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.config import LogConfig
from logbroker.errors import OffsetOutOfRange, StorageFailed
from logbroker.records.batch import iter_batches
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import create_folder
from tests.support.property_examples import examples
from tests.unit.logbroker.storage.storage_content import (
    TOPIC_ID,
    OpenLog,
    append_all,
    batch,
    content,
    file_content,
    headers_of,
    make_visible,
    records_of,
    values_of,
)

NOW_MS = 1_700_000_000_000


def test_nothing_is_read_before_it_is_flushed(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a")])
    assert log.read(0, 1000, whole_batch=True) is None
    flushed = log.flush()
    assert log.read(0, 1000, whole_batch=True) is None
    log.advance_high_watermark(flushed)
    assert values_of(log) == [b"a"]


def test_a_span_ends_at_the_high_watermark_not_at_the_end_of_the_file(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [first := batch(b"a")])
    flushed = log.flush()
    append_all(log, [batch(b"b")])
    log.advance_high_watermark(flushed)
    span = log.read(0, 10_000, whole_batch=True)
    assert content(span) == bytes(first)
    assert log.high_watermark == 1
    assert log.log_end_offset == 2


def test_offsets_outside_the_log_are_rejected_and_the_end_offset_is_valid(
    new_log: OpenLog,
) -> None:
    log = new_log()
    append_all(log, [batch(b"a", b"b"), batch(b"c", b"d")])
    make_visible(log)
    append_all(log, [batch(b"e")])
    log.delete_records_before(1)
    for offset in (0, 6):
        with pytest.raises(OffsetOutOfRange, match="the log has 1 to 5"):
            log.read(offset, 1000, whole_batch=True)
    for offset in (4, 5):
        assert log.read(offset, 1000, whole_batch=True) is None


def test_an_offset_inside_a_batch_returns_the_whole_batch(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a", b"b", b"c"), second := batch(b"d", b"e")])
    make_visible(log)
    assert content(log.read(4, 1, whole_batch=True)) == bytes(second)


def test_a_batch_above_the_limit_is_returned_only_with_whole_batch(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [first := batch(b"a" * 500), batch(b"b")])
    make_visible(log)
    assert log.read(0, 100, whole_batch=False) is None
    assert content(log.read(0, 100, whole_batch=True)) == bytes(first)
    assert content(log.read(0, len(first), whole_batch=False)) == bytes(first)
    assert content(log.read(0, len(first) + 10, whole_batch=False)) == bytes(first)


def test_a_span_does_not_pass_the_end_of_its_segment(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024)
    append_all(log, [batch(b"x" * 400) for _ in range(5)])
    make_visible(log)
    assert len(log.segments) == 3
    spans = [log.read(offset, 1 << 20, whole_batch=True) for offset in (0, 1, 2, 4)]
    assert [span and span.length for span in spans] == [940, 470, 940, 470]


def test_a_span_outlives_the_deletion_of_its_segment(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024, retention_bytes=0)
    append_all(log, [batch(b"x" * 400) for _ in range(5)])
    make_visible(log)
    span = log.read(0, 1 << 20, whole_batch=True)
    expected = file_content(log.segments[0])
    for deleted in log.apply_retention(NOW_MS):
        for path in deleted.paths:
            path.unlink()
    assert content(span) == expected
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1, whole_batch=True)


def test_a_missing_file_is_a_storage_error(
    new_log: OpenLog, reopened: OpenLog, folder: Path
) -> None:
    log = new_log(segment_bytes=1024)
    append_all(log, [batch(b"x" * 400) for _ in range(5)])
    log.close()
    log = reopened(5, is_clean=True)
    (folder / "00000000000000000002.log").unlink()
    with pytest.raises(StorageFailed, match="No such file"):
        log.read(2, 1, whole_batch=True)
    assert log.read(4, 1, whole_batch=True) is not None


SIZES = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([1, 200, 1500, 5000])), min_size=1, max_size=40
)


@examples(40)
@given(SIZES, st.sampled_from([0, 1, 300, 4096, 9000, 1 << 20]), st.booleans(), st.data())
def test_every_read_equals_a_scan_of_the_files(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int]],
    limit: int,
    whole: bool,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("log") / "t-0"
    log = PartitionLog(
        folder, "t", 0, LogConfig(segment_bytes=30_000), create_folder(folder, TOPIC_ID)
    )
    append_all(log, [batch(*[b"x" * size] * count) for count, size in sizes])
    make_visible(log)
    headers = headers_of(log.segments)
    starts = {segment.base_offset for segment in log.segments}
    for offset in data.draw(st.permutations(range(log.log_end_offset))):
        at = next(number for number, one in enumerate(headers) if one.last_offset >= offset)
        total, last = headers[at].size, at
        while last + 1 < len(headers) and headers[last + 1].base_offset not in starts:
            if total + headers[last + 1].size > limit:
                break
            last += 1
            total += headers[last].size
        fits = headers[at].size <= limit
        span = log.read(offset, limit, whole_batch=whole)
        if not fits and not whole:
            assert span is None
            continue
        found = [one.base_offset for one, _ in iter_batches(content(span))]
        assert found == [one.base_offset for one in headers[at : last + 1 if fits else at + 1]]


class Consumer(Thread):
    """Reads a log from its start until `done`, and checks that every batch follows."""

    def __init__(self, log: PartitionLog, done: Event) -> None:
        super().__init__()
        self.log, self.done = log, done
        self.offset = 0
        self.batches = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not (self.done.is_set() and self.offset == self.log.log_end_offset):
                self.take()
        except BaseException as problem:
            self.problem = problem

    def take(self) -> None:
        try:
            span = self.log.read(self.offset, 3000, whole_batch=True)
            self.log.offset_for_time(NOW_MS)
        except OffsetOutOfRange:
            self.offset = self.log.log_start_offset
            return
        for header, _ in iter_batches(content(span)) if span else ():
            assert header.base_offset <= self.offset < header.next_offset
            self.offset = header.next_offset
            self.batches += 1


@pytest.mark.long
def test_readers_see_whole_batches_while_the_log_is_written_rolled_and_cut(
    new_log: OpenLog,
) -> None:
    log, done = new_log(segment_bytes=20_000, retention_bytes=60_000), Event()
    consumers = [Consumer(log, done) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for number in range(400):
        log.append(batch(b"x" * (number % 7 * 100), timestamps=[NOW_MS + number]), NOW_MS)
        log.append(batch(b"y", b"z"), NOW_MS)
        log.write()
        make_visible(log)
        if number % 20 == 0:
            for path in [path for one in log.apply_retention(0) for path in one.paths]:
                path.unlink()
    done.set()
    for consumer in consumers:
        consumer.join(60)
    assert [consumer.problem for consumer in consumers] == [None] * 3
    assert all(consumer.offset == log.log_end_offset for consumer in consumers)


def test_records_are_decoded_as_encoded(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=2000)
    append_all(log, [batch(b"%d" % number, b"x" * 300) for number in range(20)])
    make_visible(log)
    assert [record.offset for record in records_of(log)] == list(range(40))
    assert values_of(log)[::2] == [b"%d" % number for number in range(20)]
