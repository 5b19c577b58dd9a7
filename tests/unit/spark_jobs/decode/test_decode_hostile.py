"""Malicious bytes are rejected with the batch's base offset, in bounded time and memory."""

import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch
from logbroker.records.batch import iter_batches
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, decode_records, encode_batch
from logbroker.records.varint import encode_varint
from spark_jobs.decode import DecodedChunk, UnreadableBatch, decode
from tests.support.kafka.record_batches import (
    LogRecord,
    batch_around,
    batch_of,
    batch_packed,
    framed,
    marker,
    record_body,
)

BASE = 4_711
INT32_MAX = 2**31 - 1
MB = 2**20


def decoded(log: bytes, **limits: Any) -> list[DecodedChunk]:
    wanted = {"key", "value", "headers"}
    return list(decode(log, start=0, end=2**62, wanted=wanted, **limits))


def rejected(log: bytes, match: str = "", **limits: int) -> None:
    with pytest.raises(CorruptBatch, match=rf"(batch|marker) at {BASE}\b.*{match}"):
        decoded(log, **limits)


def around(body: bytes, count: int = 1, **fields: Any) -> bytes:
    return batch_around(body, **{"base_offset": BASE, "record_count": count, **fields})


PLAIN = LogRecord(0, 5, b"key", b"value", ((b"h", b"w"), (b"i", None)))


@given(st.data())
def test_damaged_records_are_rejected_or_equal_the_reference_decoder(
    data: st.DataObject,
) -> None:
    records = [PLAIN._replace(offset_delta=n) for n in range(data.draw(st.integers(1, 4)))]
    body = bytearray(b"".join(framed(record_body(record)) for record in records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    copies = data.draw(st.sampled_from([1, 60]))  # 60 are walked in step
    log = b"".join(
        batch_around(
            bytes(body),
            base_offset=BASE + 10 * n,
            last_offset_delta=9,
            record_count=len(records),
        )
        for n in range(copies)
    )
    _, batch = next(iter_batches(log))
    try:
        plain = decode_records(batch)
    except CorruptBatch:
        return rejected(log)
    offsets = [record.offset for record in plain]
    if offsets != sorted(set(offsets)) or not BASE <= offsets[0] <= offsets[-1] < BASE + 10:
        return rejected(log)
    (chunk,) = decoded(log)
    assert chunk.keys is not None
    assert chunk.values is not None
    assert chunk.headers is not None
    assert chunk.offsets.tolist()[: len(plain)] == offsets
    assert chunk.keys.to_pylist() == [record.key for record in plain] * copies
    assert chunk.values.to_pylist() == [record.value for record in plain] * copies
    assert [
        tuple((header["key"], header["value"]) for header in headers or ())
        for headers in chunk.headers.to_pylist()
    ] == [record.headers for record in plain] * copies
    return None


@pytest.mark.parametrize("codec", Codec)
def test_a_flipped_bit_anywhere_is_detected(codec: Codec) -> None:
    log = encode_batch([NewRecord(7, b"k", b"v" * 9)] * 3, codec=codec, base_offset=BASE)
    for at in range(16, len(log)):
        damaged = bytearray(log)
        damaged[at] ^= 0x10
        rejected(bytes(damaged))


def test_records_truncated_at_any_byte_are_rejected() -> None:
    body = framed(record_body(PLAIN)) * 2
    for size in range(len(body)):
        rejected(around(body[:size], count=2, last_offset_delta=1))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(encode_varint(-1) + bytes(40), id="negative record length"),
        pytest.param(encode_varint(-(2**20)) + bytes(40), id="long negative record length"),
        pytest.param(encode_varint(INT32_MAX) + bytes(40), id="record length beyond the batch"),
        pytest.param(b"\x80" * 60, id="record length without an end"),
        pytest.param(framed(b"\0" + b"\x80" * 11 + bytes(9)), id="time without an end"),
        pytest.param(framed(b"\0\0" + b"\x80" * 6 + bytes(9)), id="offset of over 32 bits"),
        pytest.param(framed(b"\0\0\0\3\1\0"), id="key length -2"),
        pytest.param(framed(b"\0\0\0\1\3\0"), id="value length -2"),
        pytest.param(framed(b"\0\0\0\1\1"), id="no header count"),
        pytest.param(framed(b"\0\0\0\1\1\2" + b"\3\0"), id="header key length -2"),
        pytest.param(framed(b"\0\0\0\1\1\2" + b"\0\3"), id="header value length -2"),
        pytest.param(framed(b"\0\0\0" + encode_varint(INT32_MAX) + bytes(9)), id="long key"),
        pytest.param(framed(b"\0\0\0\1" + encode_varint(INT32_MAX) + bytes(9)), id="long value"),
        pytest.param(framed(b"\0\0\0\1\1" + encode_varint(-1)), id="negative header count"),
        pytest.param(framed(b"\0\0\0\1\1" + encode_varint(INT32_MAX)), id="many headers"),
        pytest.param(framed(b"\0\0\0\1\1\2" + b"\1\1"), id="header key null"),
        pytest.param(framed(b"\0\0\0\1\1\2" + b"\0\4"), id="header value beyond the record"),
        pytest.param(framed(b"\0\0\0\1\1\2" + b"\0\1\0"), id="byte after the headers"),
        pytest.param(framed(b"\0\0\0\1\1\0\0"), id="byte after no headers"),
        pytest.param(b"\0" * 50, id="records of no length"),
        pytest.param(framed(b"\0\0\0\1\1\0") + b"\0", id="byte after the last record"),
    ],
)
def test_a_record_with_wrong_lengths_is_rejected(body: bytes) -> None:
    rejected(around(body))
    # Headers of so many records are read in rounds.
    lies = [around(body), *(around(body, base_offset=BASE + n) for n in range(1, 70))]
    rejected(b"".join(lies))


@pytest.mark.parametrize("count", [-1, 0, 2, INT32_MAX])
def test_a_wrong_record_count_is_rejected(count: int) -> None:
    body = framed(record_body(PLAIN))
    before = encode_batch([NewRecord(7, b"k", b"v")])
    rejected(around(body, count=count))
    rejected(before + around(body, count=count))
    if count:
        rejected(around(b"", count=count))


@pytest.mark.parametrize(
    ("offset_deltas", "last"), [([0, 0], 1), ([1, 0], 1), ([-1, 0], 1), ([0, 2], 1)]
)
def test_offsets_that_do_not_increase_in_a_batch_are_rejected(
    offset_deltas: list[int], last: int
) -> None:
    records = [LogRecord(delta, 0, None, b"v") for delta in offset_deltas]
    log = batch_of(records, base_offset=BASE, last_offset_delta=last)
    rejected(log, "offset")
    rejected(log, "offset", chunk_bytes=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_length": 48},
        {"batch_length": -1},
        {"last_offset_delta": -1},
        {"record_count": -1},
        {"attributes": 5},
        {"attributes": 7},
        {"magic": 1},
        {"magic": 0},
        {"magic": 3},
    ],
    ids=str,
)
def test_an_invalid_batch_header_is_rejected(fields: dict[str, int]) -> None:
    log = batch_packed(framed(record_body(PLAIN)), base_offset=BASE, **fields)
    rejected(log)
    before = [encode_batch([NewRecord(7, b"k", b"v")], base_offset=n) for n in range(99)]
    rejected(b"".join(before) + log)


def test_offsets_beyond_64_bits_are_rejected() -> None:
    log = batch_packed(b"", base_offset=2**63 - 1, record_count=0)
    with pytest.raises(CorruptBatch, match=str(2**63 - 1)):
        decoded(log)


def test_a_short_message_before_magic_2_is_rejected() -> None:
    # offset, size, CRC, magic 1, attributes, time, null key, empty value
    message = BASE.to_bytes(8, "big") + (22).to_bytes(4, "big") + bytes(4)
    message += b"\1\0" + bytes(8) + b"\xff" * 4 + bytes(4)
    assert len(message) == 34
    rejected(message, "magic 1; allowed is 2")


def test_a_malformed_marker_is_rejected() -> None:
    fields: dict[str, Any] = {"base_offset": BASE, "producer_id": 7, "flags": 0x30}
    begun = batch_of([LogRecord(0, 0)], base_offset=BASE - 1, producer_id=7, flags=0x10)
    for log in (
        batch_of([LogRecord(0, 0, b"\0\0\0")], **fields),
        batch_of([LogRecord(0, 0, None)], **fields),
        batch_of([], base_offset=BASE, last_offset_delta=0, producer_id=7, flags=0x30),
        marker(BASE, 7, kind=0)[:-1] + b"\1",
    ):
        with pytest.raises(CorruptBatch, match=f"at {BASE}"):
            list(decode(begun + log, start=0, end=2**62, wanted={"value"}, aborted=[(7, 0)]))


def peak_bytes(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Codec)
def test_the_decompressed_size_of_a_batch_is_limited(codec: Codec) -> None:
    record = NewRecord(7, None, bytes(32 * MB))
    log = encode_batch([record], codec=codec, base_offset=BASE)
    assert peak_bytes(lambda: rejected(log, decompressed_bytes_max=MB)) < 4 * MB
    (chunk,) = decoded(log, decompressed_bytes_max=33 * MB)
    assert chunk.values is not None
    assert chunk.values[0].as_buffer().size == 32 * MB


def test_a_frame_without_a_size_is_limited() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    packed = compressor.compress(bytes(32 * MB)) + compressor.flush()
    log = batch_packed(packed, base_offset=BASE, attributes=Codec.ZSTD)
    assert peak_bytes(lambda: rejected(log, "ZSTD", decompressed_bytes_max=MB)) < 4 * MB


def test_no_memory_is_allocated_for_a_stated_record_count() -> None:
    logs = (
        around(framed(record_body(PLAIN)), count=INT32_MAX),
        around(framed(b"\0\0\0\1\1" + encode_varint(INT32_MAX)) + bytes(9)),
        b"".join(around(framed(record_body(PLAIN)), count=INT32_MAX) for _ in range(60)),
    )
    for log in logs:
        assert peak_bytes(partial(rejected, log)) < MB


@pytest.mark.long
def test_a_batch_of_tiny_records_is_rejected_in_its_first_part() -> None:
    packed = zlib.compress(bytes(16 * MB), wbits=31)
    log = batch_packed(
        packed,
        base_offset=BASE,
        attributes=Codec.GZIP,
        record_count=2 * MB,
        last_offset_delta=2 * MB,
    )
    assert peak_bytes(lambda: rejected(log, "too short", chunk_bytes=MB)) < 80 * MB


def test_the_number_of_headers_of_a_record_is_limited() -> None:
    body = framed(b"\0\0\0\1\1" + encode_varint(MB + 1) + b"\0\1" * (MB + 1))
    rejected(around(body), "headers")


def test_batches_outside_the_range_are_not_decoded() -> None:
    damaged = encode_batch([NewRecord(7, b"k", b"v")] * 2)[:-1] + b"\xff"
    whole = encode_batch([NewRecord(7, b"k", b"v")] * 2, base_offset=2)
    behind = encode_batch([NewRecord(7, b"k", b"v")] * 2, base_offset=4)[:-1] + b"\xff"
    (chunk,) = decode(damaged + whole + behind, start=2, end=4, wanted=set())
    assert chunk.offsets.tolist() == [2, 3]


def test_batches_before_a_damaged_one_may_be_returned_first() -> None:
    whole = encode_batch([NewRecord(7, b"k", b"v")] * 2, base_offset=BASE - 2)
    damaged = encode_batch([NewRecord(7, b"k", b"v")] * 2, base_offset=BASE)[:-1] + b"\xff"
    chunks = decode(whole + damaged, start=0, end=2**62, wanted=set(), chunk_bytes=1)
    with pytest.raises(CorruptBatch, match=f"batch at {BASE}: CRC mismatch"):
        list(chunks)


def damaged(batch: bytes, at: int, octet: int) -> bytes:
    return batch[:at] + bytes([octet]) + batch[at + 1 :]


LAST_OFFSET_DELTA_AT = 26
THREE = encode_batch([NewRecord(7, b"k", b"v")] * 3, base_offset=BASE)
BEHIND = encode_batch([NewRecord(7, b"k", b"v")], base_offset=BASE + 20)


@pytest.mark.parametrize(
    ("log", "next_offset"),
    [
        pytest.param(around(b"garbage", last_offset_delta=4), BASE + 5, id="no records"),
        pytest.param(
            around(b"garbage", last_offset_delta=4) + BEHIND, BASE + 5, id="offsets behind it"
        ),
        pytest.param(around(b"garbage", flags=7) + BEHIND, BASE + 1, id="no codec"),
        pytest.param(around(b"garbage", flags=Codec.GZIP), BASE + 1, id="no block of GZIP"),
        pytest.param(damaged(THREE, len(THREE) - 1, 255), BASE + 3, id="another CRC"),
        # With a wrong CRC its length is uncertain, so the next batch's offset counts.
        pytest.param(
            damaged(THREE, LAST_OFFSET_DELTA_AT, 1) + BEHIND, BASE + 20, id="fewer offsets"
        ),
        pytest.param(
            damaged(THREE, LAST_OFFSET_DELTA_AT, 9) + BEHIND, BASE + 20, id="more offsets"
        ),
    ],
)
def test_an_unreadable_batch_has_the_offset_after_it(log: bytes, next_offset: int) -> None:
    before = encode_batch([NewRecord(7, b"k", b"v")] * 2, base_offset=BASE - 2)
    with pytest.raises(UnreadableBatch) as raised:
        decoded(before + log)
    assert (raised.value.base_offset, raised.value.next_offset) == (BASE, next_offset)
    (chunk, *_) = decode(before + log, start=0, end=BASE, wanted=set())
    assert (chunk.offsets.tolist(), chunk.next_offset) == ([BASE - 2, BASE - 1], BASE)
