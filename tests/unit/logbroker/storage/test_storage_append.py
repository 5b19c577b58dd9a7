import struct
from collections.abc import Callable
from itertools import pairwise

import pytest
from crc32c import crc32c
from kafka.record import MemoryRecords

from logbroker.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OutOfOrderSequence,
    RecordListTooLarge,
    UnsupportedCompression,
    UnsupportedForMessageFormat,
)
from logbroker.records.batch import (
    CRC_START,
    HEADER_BYTES,
    NO_TIMESTAMP,
    crc_matches,
    read_header,
)
from logbroker.records.compression import Codec
from logbroker.records.record import decode_records
from tests.support.kafka.invalid_batches import INVALID_BATCHES, batch_with
from tests.support.kafka.record_batches import LogRecord, batch_of
from tests.unit.logbroker.storage.storage_content import (
    BASE_MS,
    OpenLog,
    append_all,
    batch,
    file_content,
    headers_of,
    make_visible,
)

NOW_MS = 1_700_000_000_000


def changed(one: memoryview, form: str, at: int, value: int, *, crc: bool = True) -> memoryview:
    """The batch with one field changed, and a CRC that fits again."""
    struct.pack_into(form, one, at, value)
    if crc:
        struct.pack_into(">I", one, 17, crc32c(one[CRC_START:]))
    return one


def test_offsets_follow_each_other_over_batches(new_log: OpenLog) -> None:
    log = new_log()
    assert log.append(batch(b"a", b"b"), NOW_MS) == 0
    assert log.append(batch(b"c"), NOW_MS) == 2
    assert log.log_end_offset == 3


def test_offset_and_epoch_are_written_into_the_callers_bytes_and_the_crc_still_holds(
    new_log: OpenLog,
) -> None:
    log = new_log()
    log.append(batch(b"a", b"b"), NOW_MS)
    second = batch(b"c", leader_epoch=-1)
    log.append(second, NOW_MS)
    header = read_header(second)
    assert (header.base_offset, header.leader_epoch) == (2, 0)
    assert crc_matches(second, header.crc)


def test_nothing_reaches_the_file_before_write(new_log: OpenLog) -> None:
    log = new_log()
    first, second = batch(b"a"), batch(b"b" * 500)
    log.append(first, NOW_MS)
    log.append(second, NOW_MS)
    assert log.has_staged
    assert file_content(log.segments[0]) == b""
    log.write()
    assert not log.has_staged
    assert file_content(log.segments[0]) == bytes(first) + bytes(second)
    assert log.size_bytes == len(first) + len(second)


@pytest.mark.parametrize("value_bytes", [100, 5000])
def test_more_batches_than_one_call_takes_are_written_in_order(
    new_log: OpenLog, value_bytes: int
) -> None:
    log = new_log()
    batches = [batch(b"%d" % number + b"x" * value_bytes) for number in range(2500)]
    for one in batches:
        log.append(one, NOW_MS)
    log.write()
    assert file_content(log.segments[0]) == b"".join(batches)


def test_a_foreign_reader_reads_the_segment_file(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a", b"b"), batch(b"c")])
    records = MemoryRecords(file_content(log.segments[0]))
    found = []
    while (one := records.next_batch()) is not None:
        assert one.validate_crc()
        found += [(record.offset, record.timestamp, record.value) for record in one]
    assert found == [(0, BASE_MS, b"a"), (1, BASE_MS + 1, b"b"), (2, BASE_MS, b"c")]


def test_append_time_replaces_every_timestamp_and_renews_the_crc(new_log: OpenLog) -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    log.append(one := batch(b"a", b"b"), NOW_MS)
    header = read_header(one)
    assert crc_matches(one, header.crc)
    assert [record.timestamp_ms for record in decode_records(one)] == [NOW_MS, NOW_MS]
    assert log.segments[0].newest_timestamp_ms == NOW_MS


REFUSALS: dict[str, tuple[Callable[[memoryview], memoryview], type[Exception]]] = {
    "cut inside the header": (lambda one: one[: HEADER_BYTES - 1], CorruptBatch),
    "empty": (lambda one: one[:0], CorruptBatch),
    "cut inside the records": (lambda one: one[:-1], CorruptBatch),
    "two batches": (lambda one: memoryview(bytearray(bytes(one) * 2)), InvalidRecord),
    "magic 1": (lambda one: changed(one, ">b", 16, 1), UnsupportedForMessageFormat),
    "a flipped bit": (lambda one: changed(one, ">b", 70, 1, crc=False), CorruptBatch),
    "a base offset": (lambda one: changed(one, ">q", 0, 5), InvalidRecord),
    "no records": (lambda one: changed(one, ">i", 57, 0), InvalidRecord),
    "a wrong count": (lambda one: changed(one, ">i", 57, 3), InvalidRecord),
    "a negative delta": (lambda one: changed(one, ">i", 23, -1), InvalidRecord),
    "codec 5": (lambda one: changed(one, ">h", 21, 5), UnsupportedCompression),
    "append time": (lambda one: changed(one, ">h", 21, 0x08), InvalidTimestamp),
    "transactional": (lambda one: changed(one, ">h", 21, 0x10), InvalidRecord),
    "control": (lambda one: changed(one, ">h", 21, 0x20), InvalidRecord),
    "delete horizon": (lambda one: changed(one, ">h", 21, 0x40), InvalidRecord),
    "no sequence": (lambda one: changed(one, ">q", 43, 9), InvalidRecord),
    "too large": (lambda _: batch(b"x" * 2000), MessageTooLarge),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_invalid_batch_is_rejected_and_changes_nothing(new_log: OpenLog, name: str) -> None:
    spoil, kind = REFUSALS[name]
    log = new_log(max_message_bytes=1000)
    log.append(batch(b"a"), NOW_MS)
    with pytest.raises(kind):
        log.append(spoil(batch(b"b", b"c")), NOW_MS)
    assert log.log_end_offset == 1
    assert log.append(batch(b"b"), NOW_MS) == 1


def test_a_batch_larger_than_a_segment_is_rejected(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024)
    with pytest.raises(RecordListTooLarge, match=r"segment\.bytes is 1024"):
        log.append(batch(b"x" * 1024), NOW_MS)


def test_a_larger_limit_applies_to_the_next_append(new_log: OpenLog) -> None:
    log = new_log(max_message_bytes=1000)
    large = batch(b"x" * 2000)
    with pytest.raises(MessageTooLarge):
        log.append(large, NOW_MS)
    log.config = type(log.config)()
    assert log.append(large, NOW_MS) == 0


def test_the_log_rolls_before_a_batch_would_outgrow_the_segment(new_log: OpenLog) -> None:
    log = new_log(segment_bytes=1024)
    batches = [batch(b"x" * 400) for _ in range(5)]
    for one in batches:
        log.append(one, NOW_MS)
    log.write()
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert [header.base_offset for header in headers_of(log.segments)] == [0, 1, 2, 3, 4]
    assert [path.name for path in log.segments[1].paths] == [
        "00000000000000000002.log",
        "00000000000000000002.index",
        "00000000000000000002.timeindex",
        "00000000000000000002.snapshot",
    ]


def test_a_segment_grows_to_exactly_its_maximum_size(new_log: OpenLog) -> None:
    one, other = batch(b"x" * 600), batch(b"y" * 600)
    log = new_log(segment_bytes=len(one) + len(other))
    append_all(log, [one, other, batch(b"z")])
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_the_log_rolls_by_the_records_own_time(new_log: OpenLog) -> None:
    log = new_log(segment_ms=1000)
    for time_ms in (BASE_MS, BASE_MS + 1000, BASE_MS + 1001):
        log.append(batch(b"x", timestamps=[time_ms]), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_the_log_rolls_at_a_random_earlier_time_with_jitter(new_log: OpenLog) -> None:
    log = new_log(segment_ms=1_000, segment_jitter_ms=1_000)
    times = range(BASE_MS, BASE_MS + 20_000, 10)
    append_all(log, (batch(b"x", timestamps=[time_ms]) for time_ms in times))
    bases = [segment.base_offset for segment in log.segments]
    spans_ms = [(after - before) * 10 for before, after in pairwise(bases)]
    assert len(set(spans_ms)) > 1
    assert max(spans_ms) <= 1_010


def test_the_log_rolls_before_an_index_is_too_large(new_log: OpenLog) -> None:
    log = new_log(segment_index_bytes=4096)
    append_all(log, (batch(b"x" * 6_000) for _ in range(1_000)))
    log.close()
    indexes = [path for one in log.segments for path in one.paths[1:3]]
    assert max(path.stat().st_size for path in indexes) <= 4096
    assert len(log.segments) > 1


def test_the_log_rolls_by_the_clock_when_records_have_no_time(new_log: OpenLog) -> None:
    log = new_log(segment_ms=1000)
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
        log.append(batch(b"x", timestamps=[-1]), now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_the_log_rolls_before_an_offset_outgrows_the_index(new_log: OpenLog) -> None:
    log = new_log()
    log.append(batch(b"x"), NOW_MS)
    log.log_end_offset = 2**31 - 1  # as after two billion records
    log.append(batch(b"y"), NOW_MS)
    log.append(batch(b"z"), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


@pytest.mark.parametrize("name", INVALID_BATCHES)
def test_a_batch_with_invalid_records_and_a_right_crc_is_rejected(
    new_log: OpenLog, name: str
) -> None:
    log = new_log()
    with pytest.raises(InvalidRecord):
        log.append(memoryview(bytearray(INVALID_BATCHES[name])), NOW_MS)
    assert (log.log_end_offset, len(log.segments), log.has_staged) == (0, 1, False)
    assert log.append(batch(b"a"), NOW_MS) == 0


@pytest.mark.parametrize("codec", Codec)
def test_a_wrong_crc_is_found_before_invalid_records(new_log: OpenLog, codec: Codec) -> None:
    wrong = memoryview(bytearray(batch_with(b"\xff" * 40, codec=codec)))
    one = changed(wrong, ">I", 17, 1, crc=False)
    with pytest.raises(CorruptBatch, match="CRC"):
        new_log().append(one, NOW_MS)


@pytest.mark.parametrize("codec", Codec)
def test_a_wrong_largest_timestamp_is_corrected_in_the_header(
    new_log: OpenLog, codec: Codec
) -> None:
    log = new_log()
    log.append(one := changed(batch(b"a", b"b", codec=codec), ">q", 35, 2**62), NOW_MS)
    header = read_header(one)
    assert header.max_timestamp == BASE_MS + 1
    assert crc_matches(one, header.crc)
    assert log.segments[0].newest_timestamp_ms == BASE_MS + 1


def test_timestamps_outside_of_the_topics_range_are_rejected(new_log: OpenLog) -> None:
    log = new_log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=0)
    log.append(batch(b"a", b"b", timestamps=[NOW_MS - 1000, NOW_MS]), NOW_MS)
    log.append(batch(b"a", timestamps=[NO_TIMESTAMP]), NOW_MS)
    with pytest.raises(InvalidTimestamp, match="1 of 2 records") as raised:
        log.append(batch(b"a", b"b", timestamps=[NOW_MS, NOW_MS + 1]), NOW_MS)
    assert [index for index, _ in raised.value.record_errors] == [1]
    log.append(batch(b"a", timestamps=[NOW_MS + 1]), NOW_MS + 1)
    with pytest.raises(InvalidTimestamp):
        log.append(batch(b"a", timestamps=[NOW_MS - 1]), NOW_MS + 1000)


def test_an_append_time_ends_the_range_of_timestamps(new_log: OpenLog) -> None:
    log = new_log(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    assert log.append(batch(b"a", timestamps=[NOW_MS + 10**9]), NOW_MS) == 0


def test_a_compacted_topic_rejects_each_record_without_a_key(new_log: OpenLog) -> None:
    log = new_log(cleanup_policy="compact")
    with_key, without = LogRecord(0, 0, b"k", b"v"), LogRecord(1, 0, None, b"v")
    mixed = batch_of([with_key, without, with_key._replace(offset_delta=2)])
    with pytest.raises(InvalidRecord, match="without a key") as raised:
        log.append(memoryview(bytearray(mixed)), NOW_MS)
    assert [index for index, _ in raised.value.record_errors] == [1]
    assert log.append(memoryview(bytearray(batch_of([with_key]))), NOW_MS) == 0


def test_a_retry_of_an_idempotent_producer_is_stored_once(new_log: OpenLog) -> None:
    log = new_log()
    sent = [idempotent(sequence) for sequence in range(6)]
    retried = [memoryview(bytearray(one)) for one in sent]
    assert [log.append(one, NOW_MS) for one in sent] == [0, 1, 2, 3, 4, 5]
    assert [log.append(one, NOW_MS) for one in retried[1:]] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequence):
        log.append(retried[0], NOW_MS)
    log.write()
    assert len(headers_of(log.segments)) == 6


def idempotent(sequence: int, *, epoch: int = 0, producer_id: int = 9) -> memoryview:
    return batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_a_gap_in_the_sequence_is_rejected(new_log: OpenLog) -> None:
    log = new_log()
    log.append(idempotent(0), NOW_MS)
    with pytest.raises(OutOfOrderSequence, match="sequence 2, expected 1"):
        log.append(idempotent(2), NOW_MS)
    assert log.append(idempotent(1), NOW_MS) == 1


def test_an_old_epoch_is_rejected_and_a_new_one_begins_at_zero(new_log: OpenLog) -> None:
    log = new_log()
    log.append(idempotent(0, epoch=3), NOW_MS)
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(1, epoch=4), NOW_MS)
    assert log.append(idempotent(0, epoch=4), NOW_MS) == 1
    with pytest.raises(InvalidProducerEpoch):
        log.append(idempotent(1, epoch=3), NOW_MS)


def test_producers_expire_by_the_clock_not_by_record_time(new_log: OpenLog) -> None:
    log = new_log()
    log.append(idempotent(0), NOW_MS)
    log.append(idempotent(0, producer_id=8), NOW_MS + 500)
    log.write()
    log.expire_producers(NOW_MS + 1000, expiration_ms=999)
    # Unknown again: it may begin anywhere. The other one is still held to its sequence.
    assert log.append(idempotent(7), NOW_MS) == 2
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(7, producer_id=8), NOW_MS)


def test_messages_since_the_last_flush_are_known(new_log: OpenLog) -> None:
    log = new_log()
    assert log.unflushed_messages == 0
    append_all(log, [batch(b"a", b"b")], NOW_MS)
    append_all(log, [batch(b"c")], NOW_MS + 5)
    assert log.unflushed_messages == 3
    flushed = log.flush()
    append_all(log, [batch(b"d")], NOW_MS + 9)
    log.advance_high_watermark(flushed)
    assert log.unflushed_messages == 1
    make_visible(log)
    assert log.unflushed_messages == 0
