import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from logbroker.errors import CorruptBatch
from logbroker.records.batch import HEADER_BYTES, crc_matches, read_header, stamp_append_time
from logbroker.records.compression import Codec, compress
from logbroker.records.record import (
    NewRecord,
    Record,
    decode_records,
    encode_batch,
    first_record_at_or_after,
)
from logbroker.records.varint import encode_varint
from tests.support.property_examples import examples

NOW_MS = 1_700_000_000_000

codecs = st.sampled_from(Codec)
nullable_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=70), nullable_bytes), max_size=4).map(tuple)
new_records = st.builds(NewRecord, st.integers(0, 2**45), nullable_bytes, nullable_bytes, headers)
record_lists = st.lists(new_records, min_size=1, max_size=80)


def at_offsets(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + index, *record) for index, record in enumerate(records)]


def rebuilt(batch: bytes, body: bytes, **changes: int) -> bytes:
    """`batch` with other record bytes (plain), its length and CRC made right again."""
    header = read_header(batch)._replace(batch_length=49 + len(body), **changes)
    fields = struct.pack(">hiqqqhii", *header[5:])
    prefix = struct.pack(">qiibI", *header[:4], crc32c(fields + body))
    return prefix + fields + body


def three_records(codec: Codec = Codec.NONE) -> bytes:
    times = (NOW_MS, NOW_MS + 2, NOW_MS + 1)
    return encode_batch([NewRecord(t, b"k", b"v") for t in times], codec=codec, base_offset=100)


@given(record_lists, codecs, st.integers(0, 2**62))
def test_records_are_read_at_their_offsets(
    records: list[NewRecord], codec: Codec, base_offset: int
) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    for buffer in (bytes, bytearray, memoryview):
        assert decode_records(buffer(batch)) == at_offsets(records, base_offset)


@given(record_lists, codecs)
def test_the_header_says_what_the_records_are(records: list[NewRecord], codec: Codec) -> None:
    batch = encode_batch(
        records,
        codec=codec,
        base_offset=5,
        producer_id=7,
        producer_epoch=2,
        base_sequence=30,
        leader_epoch=4,
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset) == (5, 4 + len(records))
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 30)
    assert (header.leader_epoch, header.compression, header.magic) == (4, codec, 2)
    assert crc_matches(batch, header.crc)


@pytest.mark.parametrize("foreign_records", [KafkaPythonRecords, AiokafkaRecords])
@examples(50)
@given(records=record_lists, codec=codecs)
def test_foreign_readers_read_what_is_written(foreign_records, records, codec) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    batches = foreign_records(encode_batch(records, codec=codec, base_offset=9))
    batch = batches.next_batch()
    assert batch.validate_crc()
    read = [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(tuple(h) for h in r.headers))
        for r in batch
    ]
    assert read == at_offsets(records, 9)
    assert batches.next_batch() is None


@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AiokafkaBuilder])
@examples(50)
@given(records=record_lists, codec=codecs)
def test_batches_of_other_encoders_are_decoded(builder_class, records, codec) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    builder = builder_class(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, record in enumerate(records):
        assert builder.append(
            offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    batch = bytes(builder.build())
    assert crc_matches(batch, read_header(batch).crc)
    assert decode_records(batch) == at_offsets(records)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cut_at_any_byte_is_corrupt(codec: Codec) -> None:
    batch = three_records(codec)
    for end in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode_records(batch[:end])


def test_records_cut_at_any_byte_under_a_true_length_and_crc_are_corrupt() -> None:
    records = [NewRecord(NOW_MS, b"key", b"v" * 200, (("name", b"1"), ("none", None)))] * 2
    batch = encode_batch(records)
    body = batch[HEADER_BYTES:]
    for end in range(len(body)):
        with pytest.raises(CorruptBatch):
            decode_records(rebuilt(batch, body[:end]))


def test_bytes_after_the_batch_or_after_its_records_are_corrupt() -> None:
    batch = three_records()
    size = len(batch)
    with pytest.raises(CorruptBatch, match=f"size is {size} in its header, but {size + 1} bytes"):
        decode_records(batch + b"\0")
    with pytest.raises(CorruptBatch, match="1 bytes are left after its 3 records"):
        decode_records(rebuilt(batch, batch[HEADER_BYTES:] + b"\0"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (encode_varint(-1) + bytes(9), "does not have its length"),
        (encode_varint(2**31 - 1) + bytes(9), "does not have its length"),
        (b"\x0c\0\0\0" + encode_varint(-2) + b"\x01\0", "length -2"),
        (b"\x0e\0\0\0\x01\x01" + b"\x01" + b"\0", "-1 headers"),
        (b"\x12\0\0\0\x01\x01\x02\x01\x01\x00", "key is null"),
        (b"\x0c\0\0\0\x7e\x01\0", "cut off"),
        (b"\x0c\0" + b"\xff" * 11, "64 bits"),
    ],
)
def test_a_record_that_contradicts_itself_is_corrupt(body: bytes, message: str) -> None:
    batch = encode_batch([NewRecord(NOW_MS, None, None)])
    with pytest.raises(CorruptBatch, match=message):
        decode_records(rebuilt(batch, body))


def test_a_header_key_that_is_not_utf_8_does_not_corrupt_the_batch() -> None:
    batch = encode_batch([NewRecord(NOW_MS, None, None)])
    body = b"\x12\0\0\0\x01\x01\x02\x02\xff\x01"
    (record,) = decode_records(rebuilt(batch, body))
    assert record.headers == (("\N{REPLACEMENT CHARACTER}", None),)


def test_a_header_that_counts_more_or_fewer_records_is_corrupt() -> None:
    batch = three_records()
    body = batch[HEADER_BYTES:]
    for count in (-1, 0, 2, 4, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            decode_records(rebuilt(batch, body, record_count=count))


def test_another_magic_or_codec_is_corrupt_and_named() -> None:
    batch = three_records()
    body = batch[HEADER_BYTES:]
    with pytest.raises(CorruptBatch, match="magic 1"):
        decode_records(rebuilt(batch, body, magic=1))
    with pytest.raises(CorruptBatch, match="codec 5"):
        decode_records(rebuilt(batch, body, attributes=5))


@examples(500)
@given(st.data())
def test_a_flipped_byte_never_gives_another_error(data: st.DataObject) -> None:
    batch = bytearray(three_records(data.draw(codecs)))
    index = data.draw(st.integers(0, len(batch) - 1))
    batch[index] ^= data.draw(st.integers(1, 255))
    try:
        decode_records(batch, bytes_max=10_000)
    except CorruptBatch:
        return


@pytest.mark.parametrize("codec", Codec)
def test_more_bytes_than_requested_are_rejected(codec: Codec) -> None:
    batch = encode_batch([NewRecord(NOW_MS, None, b"x" * 10_000)], codec=codec)
    assert len(decode_records(batch, bytes_max=11_000)) == 1
    with pytest.raises(CorruptBatch, match="9000"):
        decode_records(batch, bytes_max=9000)


@pytest.mark.parametrize("codec", Codec)
def test_every_record_has_the_append_time_with_log_append_time(codec: Codec) -> None:
    batch = bytearray(three_records(codec))
    stamp_append_time(batch, NOW_MS + 500)
    assert crc_matches(batch, read_header(batch).crc)
    assert {record.timestamp_ms for record in decode_records(batch)} == {NOW_MS + 500}
    first = first_record_at_or_after(batch, NOW_MS + 500, 0)
    assert first is not None
    assert first.offset == 100
    assert first_record_at_or_after(batch, NOW_MS + 501, 0) is None


def test_a_transaction_marker_is_decoded_as_a_record() -> None:
    # version 0, type 1 (commit); value: version 0, coordinator epoch 5
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5)
    batch = encode_batch([NewRecord(NOW_MS, key, value)])
    control = rebuilt(batch, batch[HEADER_BYTES:], attributes=0x30)
    assert read_header(control).is_control
    assert decode_records(control) == [Record(0, NOW_MS, key, value, ())]


def test_a_batch_with_removed_records_keeps_its_offsets() -> None:
    batch = encode_batch([NewRecord(NOW_MS, b"k", b"v")] * 5, base_offset=20)
    body = batch[HEADER_BYTES:]
    record_bytes = len(body) // 5
    kept = body[record_bytes : 2 * record_bytes] + body[4 * record_bytes :]
    records = decode_records(rebuilt(batch, kept, record_count=2))
    assert [record.offset for record in records] == [21, 24]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("timestamp_ms", "offset_min", "offset"),
    [
        (0, 0, 100),
        (NOW_MS, 0, 100),
        (NOW_MS + 1, 0, 101),
        (NOW_MS + 2, 0, 101),
        (NOW_MS + 3, 0, None),
        (0, 101, 101),
        (NOW_MS + 1, 102, 102),
        (NOW_MS + 2, 102, None),
        (0, 103, None),
    ],
)
def test_the_first_record_of_a_time_and_an_offset(
    codec: Codec, timestamp_ms: int, offset_min: int, offset: int | None
) -> None:
    found = first_record_at_or_after(three_records(codec), timestamp_ms, offset_min)
    assert (found and found.offset) == offset


def test_a_compressed_batch_without_its_compression_is_corrupt() -> None:
    batch = three_records()
    for codec in Codec:
        if codec is not Codec.NONE:
            with pytest.raises(CorruptBatch):
                decode_records(rebuilt(batch, batch[HEADER_BYTES:], attributes=codec))
            packed = compress(codec, batch[HEADER_BYTES:])
            assert len(decode_records(rebuilt(batch, packed, attributes=codec))) == 3
