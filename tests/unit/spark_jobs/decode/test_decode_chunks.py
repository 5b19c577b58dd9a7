"""The vectorised decoder equals the reference decoder of `logbroker.records`."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch
from logbroker.records.batch import TIMESTAMP_TYPE_FLAG, iter_batches, stamp_append_time
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, decode_records, encode_batch
from spark_jobs.decode import DecodedChunk, decode
from tests.support.kafka.record_batches import LogRecord, batch_of, marker

GOLDEN = Path(__file__).parents[3] / "golden" / "records"
EVERYTHING = frozenset({"key", "value", "headers"})
FAR = 2**62


class Row(NamedTuple):
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def rows(chunks: Iterable[DecodedChunk]) -> list[Row]:
    return [row for chunk in chunks for row in chunk_rows(chunk)]


def chunk_rows(chunk: DecodedChunk) -> list[Row]:
    assert chunk.keys is not None
    assert chunk.values is not None
    assert chunk.headers is not None
    for column in (chunk.keys, chunk.values, chunk.headers):
        column.validate(full=True)
    headers = [
        each and [(header["key"], header["value"]) for header in each]
        for each in chunk.headers.to_pylist()
    ]
    columns: list[Sequence[Any]] = [
        chunk.offsets.tolist(),
        chunk.timestamps_ms.tolist(),
        chunk.timestamp_types.tolist(),
        chunk.keys.to_pylist(),
        chunk.values.to_pylist(),
        headers,
    ]
    return [Row(*row) for row in zip(*columns, strict=True)]


def plainly(data: bytes, start: int = 0, end: int = FAR) -> list[Row]:
    return [
        Row(
            record.offset,
            record.timestamp_ms,
            int(header.is_append_time),
            record.key,
            record.value,
            list(record.headers) or None,
        )
        for header, batch in iter_batches(data)
        for record in decode_records(batch)
        if start <= record.offset < end
    ]


def at_once(data: bytes, start: int = 0, end: int = FAR, **limits: Any) -> list[Row]:
    return rows(decode(data, start=start, end=end, wanted=EVERYTHING, **limits))


nullable = (
    st.none() | st.binary(max_size=12) | st.sampled_from([b"x" * 62, b"y" * 200, b"z" * 9000])
)
header_keys = st.text(max_size=6).map(str.encode) | st.just(b"\xff\xfe")
headers = st.lists(st.tuples(header_keys, nullable), max_size=3).map(tuple)
times = st.integers(-(2**40), 2**40) | st.integers(-(2**61), 2**61)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of every codec and both timestamp types, with gaps before, in and after them."""
    batches, base_offset = [], draw(st.integers(0, 3) | st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 70]), max_size=12))
        deltas = [sum(steps[:count]) - 1 for count in range(1, len(steps) + 1)]
        records = [
            LogRecord(delta, draw(times), draw(nullable), draw(nullable), draw(headers))
            for delta in deltas
        ]
        last = (deltas[-1] if deltas else 0) + draw(st.sampled_from([0, 0, 3]))
        batches.append(
            batch_of(
                records,
                base_offset=base_offset,
                last_offset_delta=last,
                codec=draw(st.sampled_from(Codec)),
                base_timestamp=draw(times),
                max_timestamp=draw(times),
                flags=draw(st.sampled_from([0, TIMESTAMP_TYPE_FLAG])),
            )
        )
        base_offset += last + 1 + draw(st.sampled_from([0, 0, 5]))
    return b"".join(batches)


@given(logs(), st.data(), st.sampled_from([1, 50, 1000, 2**22]))
def test_any_range_of_any_log_equals_the_reference_decoder(
    log: bytes, data: st.DataObject, chunk_bytes: int
) -> None:
    headers = [header for header, _ in iter_batches(log)]
    around = st.integers(headers[0].base_offset - 1, headers[-1].next_offset + 1)
    start = max(0, data.draw(around))
    end = data.draw(st.integers(start, headers[-1].next_offset + 1))
    chunks = list(decode(log, start=start, end=end, wanted=EVERYTHING, chunk_bytes=chunk_bytes))
    assert rows(chunks) == plainly(log, start, end)
    positions = [start, *(chunk.next_offset for chunk in chunks)]
    assert positions == sorted(positions)
    assert positions[-1] == max(start, min(end, headers[-1].next_offset))


@given(logs(), st.sampled_from([1, 300, 2**22]))
def test_reading_continues_after_any_chunk(log: bytes, chunk_bytes: int) -> None:
    whole = plainly(log)
    seen = 0
    for chunk in decode(log, start=0, end=FAR, wanted=EVERYTHING, chunk_bytes=chunk_bytes):
        seen += len(chunk.offsets)
        assert at_once(log, chunk.next_offset) == whole[seen:]


@given(logs(), st.sets(st.sampled_from(["key", "value", "headers", "offset"])))
def test_unwanted_columns_are_not_gathered(log: bytes, wanted: set[str]) -> None:
    for chunk in decode(log, start=0, end=FAR, wanted=wanted):
        assert (chunk.keys is not None) == ("key" in wanted)
        assert (chunk.values is not None) == ("value" in wanted)
        assert (chunk.headers is not None) == ("headers" in wanted)
        assert chunk.offsets.tolist() == [row.offset for row in plainly(log)]


def test_a_log_truncated_at_any_byte_returns_its_complete_batches() -> None:
    parts = [
        encode_batch([NewRecord(7, b"k", b"v", (("h", b"w"),))] * 3, codec=codec, base_offset=base)
        for base, codec in ((0, Codec.NONE), (3, Codec.ZSTD), (6, Codec.NONE))
    ]
    log = b"".join(parts)
    ends = np.cumsum([len(part) for part in parts])
    for size in range(len(log) + 1):
        whole = 3 * int(np.searchsorted(ends, size, side="right"))
        chunks = list(decode(log[:size], start=0, end=FAR, wanted=EVERYTHING))
        assert rows(chunks) == plainly(log)[:whole]
        assert [chunk.next_offset for chunk in chunks] == ([whole] if whole else [])


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.batch")), ids=lambda path: path.stem)
def test_a_captured_batch_is_decoded(path: Path) -> None:
    expected = [
        Row(
            offset,
            fields["timestamp_ms"],
            0,
            octets(fields["key"]),
            octets(fields["value"]),
            [(key, octets(value)) for key, value in fields["headers"]] or None,
        )
        for offset, fields in enumerate(json.loads((GOLDEN / "records.json").read_text()))
    ]
    assert at_once(path.read_bytes()) == expected


def octets(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def many_batches(sizes: Iterable[int], value: bytes = b"v") -> bytes:
    batches, base_offset = [], 0
    for size in sizes:
        records = [NewRecord(1_000 + n, b"%d" % n, value * (n % 90)) for n in range(size)]
        batches.append(encode_batch(records, base_offset=base_offset))
        base_offset += size
    return b"".join(batches)


@given(st.lists(st.integers(1, 9), min_size=60, max_size=150), st.integers(0, 300))
def test_batches_walked_in_step_equal_the_reference(sizes: list[int], start: int) -> None:
    log = many_batches(sizes)
    assert at_once(log, start) == plainly(log, start)


def test_a_long_record_among_many_batches_is_decoded() -> None:
    log = many_batches([3] * 100)
    values = (b"x", b"y" * 20_000, b"z")
    long = encode_batch([NewRecord(5, None, value) for value in values], base_offset=300)
    assert at_once(log + long) == plainly(log + long)


def test_a_large_batch_is_split_and_can_be_entered_at_any_offset() -> None:
    records = [NewRecord(n, None, b"x" * (n % 300)) for n in range(20_000)]
    log = encode_batch(records, codec=Codec.LZ4, base_offset=50)
    chunks = list(decode(log, start=5_000, end=15_000, wanted=EVERYTHING, chunk_bytes=64 * 1024))
    assert rows(chunks) == plainly(log, 5_000, 15_000)
    assert len(chunks) > 20
    assert max(chunk.values.nbytes for chunk in chunks if chunk.values) < 2 * 64 * 1024
    assert chunks[-1].next_offset == 15_000


def test_with_append_time_every_record_has_the_time_of_its_batch() -> None:
    log = bytearray(encode_batch([NewRecord(t, b"k", b"v") for t in (5, 9, 7)]))
    stamp_append_time(log, 1_234)
    found = at_once(bytes(log))
    assert [(row.timestamp_ms, row.timestamp_type) for row in found] == [(1_234, 1)] * 3


def test_a_batch_emptied_by_compaction_moves_the_position() -> None:
    log = batch_of([], base_offset=10, last_offset_delta=4)
    (chunk,) = decode(log, start=10, end=FAR, wanted=EVERYTHING)
    assert (len(chunk.offsets), chunk.next_offset) == (0, 15)
    assert chunk_rows(chunk) == []


def test_no_bytes_return_no_chunk() -> None:
    assert list(decode(b"", start=3, end=9, wanted=EVERYTHING)) == []


class _Ongoing(NamedTuple):
    first_offset: int
    values: list[bytes]


@st.composite
def transactions(draw: st.DrawFn) -> tuple[bytes, list[bytes], list[tuple[int, int]], list[bytes]]:
    """A log, its records, its aborted transactions, and the result of a committed read."""
    parts: list[bytes] = []
    written: list[tuple[int, bytes]] = []
    open_ones: dict[int, _Ongoing] = {}
    aborted: list[tuple[int, int]] = []
    lost: set[bytes] = set()
    offset = 0
    steps = st.tuples(st.integers(-1, 3), st.sampled_from(["data", "data", "commit", "abort"]))
    for producer_id, step in draw(st.lists(steps, max_size=30)):
        if step == "data" or producer_id == -1:
            values = [b"%d" % (offset + n) for n in range(draw(st.integers(1, 3)))]
            flags = 0x10 if producer_id >= 0 else 0
            records = [LogRecord(n, 0, None, value) for n, value in enumerate(values)]
            codec = draw(st.sampled_from(Codec))
            fields = {"base_offset": offset, "producer_id": producer_id, "flags": flags}
            parts.append(batch_of(records, codec=codec, **fields))
            written += enumerate(values, offset)
            if producer_id >= 0:
                open_ones.setdefault(producer_id, _Ongoing(offset, [])).values.extend(values)
            offset += len(values)
            continue
        # A coordinator may also end a transaction without records in this partition.
        ended = open_ones.pop(producer_id, None)
        if step == "abort" and ended:
            aborted.append((producer_id, ended.first_offset))
            lost.update(ended.values)
        parts.append(marker(offset, producer_id, kind=0 if step == "abort" else 1))
        offset += 1
    values = [value for _, value in written]
    return b"".join(parts), values, aborted, [value for value in values if value not in lost]


@given(transactions(), st.sampled_from([1, 2**22]))
def test_aborted_transactions_and_markers_are_skipped(
    case: tuple[bytes, list[bytes], list[tuple[int, int]], list[bytes]], chunk_bytes: int
) -> None:
    log, values, aborted, committed = case
    limits = {"chunk_bytes": chunk_bytes}
    assert [row.value for row in at_once(log, **limits)] == values
    chunks = list(
        decode(log, start=0, end=FAR, wanted=EVERYTHING, aborted=aborted, chunk_bytes=chunk_bytes)
    )
    assert [row.value for row in rows(chunks)] == committed
    ends = [header.next_offset for header, _ in iter_batches(log)]
    assert [chunk.next_offset for chunk in chunks[-1:]] == ends[-1:]


def test_the_first_record_of_an_aborted_transaction_is_skipped() -> None:
    aborted = batch_of([LogRecord(0, 0, None, b"a")], base_offset=20, producer_id=7, flags=0x10)
    chunks = decode(aborted, start=20, end=FAR, wanted=EVERYTHING, aborted=[(7, 20)])
    assert rows(chunks) == []


def test_a_transaction_that_began_before_the_bytes_is_skipped() -> None:
    data = [LogRecord(0, 0, None, b"a")]
    log = b"".join(
        (
            batch_of(data, base_offset=20, producer_id=7, flags=0x10),
            marker(21, 7, kind=0),
            batch_of(data, base_offset=22, producer_id=7, flags=0x10),
            marker(23, 7, kind=1),
        )
    )
    chunks = decode(log, start=20, end=FAR, wanted=EVERYTHING, aborted=[(7, 3)])
    assert [row.offset for row in rows(chunks)] == [22]


def test_chunks_do_not_reference_the_decoded_bytes() -> None:
    log = bytearray(many_batches([50] * 4))
    expected = plainly(bytes(log))
    view = memoryview(log)
    chunks = list(decode(view, start=0, end=FAR, wanted=EVERYTHING))
    view[:] = bytes(len(view))
    view.release()
    log.clear()  # fails while references exist
    assert rows(chunks) == expected


@given(st.integers(0, 150), st.integers(0, 150))
@example(0, 0)
def test_a_range_of_one_batch(start: int, size: int) -> None:
    log = many_batches([100])
    assert at_once(log, start, start + size) == plainly(log, start, start + size)


def test_times_beyond_64_bits_wrap_as_in_java() -> None:
    log = batch_of([LogRecord(0, 1)], base_timestamp=2**63 - 1)
    assert [row.timestamp_ms for row in at_once(log)] == [-(2**63)]


def test_overlapping_batches_are_rejected() -> None:
    log = many_batches([3]) * 2
    with pytest.raises(CorruptBatch, match="batch at 0 overlaps the previous one"):
        at_once(log)
