"""Decodes a chunk of the log into Arrow columns, without a Python object per record."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from logbroker.records.batch import Buffer
from logbroker.records.record import RECORDS_BYTES_MAX
from spark_jobs.decode.batches import plain_batches
from spark_jobs.decode.fields import Fields, read_fields
from spark_jobs.decode.header_lists import read_headers
from spark_jobs.decode.record_bytes import RecordBytes, record_bytes
from spark_jobs.decode.spans import SPANS_BYTES_MAX, Spans
from spark_jobs.decode.varints import PADDING, Longs, VarintBytes

CHUNK_BYTES: Final = 4 * 2**20
"""Fits in processor caches, and is large enough to amortise numpy's overhead per call."""


class DecodedChunk(NamedTuple):
    """Records in offset order, one element per record; a column that was not requested is None.

    No column refers to the decoded bytes. `timestamps_ms` are milliseconds since 1970, -1 for none;
    `timestamp_types` are 0 for the producer's time and 1 for the broker's. `keys` and `values` are
    binary, `headers` is list<element: struct<key: string, value: binary>>, null for a record
    without. `next_offset` is the offset after the chunk.
    """

    offsets: Longs
    timestamps_ms: Longs
    timestamp_types: npt.NDArray[np.int8]
    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    next_offset: int


def decode(
    data: Buffer,
    *,
    start: int,
    end: int,
    wanted: Collection[str],
    aborted: Sequence[tuple[int, int]] = (),
    decompressed_bytes_max: int = RECORDS_BYTES_MAX,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[DecodedChunk]:
    """The records of `data` with offsets in [`start`, `end`), in chunks of about `chunk_bytes`.

    `data` is consecutive batches, of which the first may begin before `start`; a truncated last one
    is omitted. The caller owns it, and may reuse it after the last chunk. `wanted` are the columns
    to gather, of "key", "value" and "headers"; other names are ignored. `aborted` has the producer
    id and first offset of each aborted transaction in `data`; their records are omitted, and so are
    transaction markers.

    A chunk may be empty. The last `next_offset` is where to continue; without any chunk it is
    `start`. A chunk exceeds `chunk_bytes` of decompressed records by at most one record. One whole
    batch is held meanwhile, up to `decompressed_bytes_max`.

    Raises:
        UnreadableBatch: a batch cannot be read; the message has its base offset. Preceding batches
            of the same chunk were not returned.
        CorruptBatch: the same, and the next batch cannot be located.
    """
    assert max(decompressed_bytes_max, chunk_bytes) + len(PADDING) <= SPANS_BYTES_MAX
    groups = plain_batches(
        data,
        start=start,
        end=end,
        aborted=aborted,
        decompressed_bytes_max=decompressed_bytes_max,
        group_bytes=chunk_bytes,
    )
    reached = 0
    for batches in groups:
        for records in record_bytes(batches, chunk_bytes):
            chunk = _chunk(records, reached, (start, end), frozenset(wanted))
            reached = chunk.next_offset
            yield chunk._replace(next_offset=max(start, min(reached, end)))
            if reached >= end:
                return


def _chunk(
    records: RecordBytes, offset_min: int, offsets_wanted: tuple[int, int], wanted: frozenset[str]
) -> DecodedChunk:
    """The wanted part of `records`; `next_offset` is after all of them."""
    numbers, data = VarintBytes(records.data), pa.py_buffer(records.data)
    fields = read_fields(records, numbers)
    offsets = _offsets(records, fields, offset_min)
    timestamps_ms, timestamp_types = _times(records, fields.timestamp_deltas)
    first, last = np.searchsorted(offsets, offsets_wanted).tolist()
    kept = fields.part(first, last)
    batch_end = int(records.batches.next_offsets[-1])
    return DecodedChunk(
        offsets=offsets[first:last],
        timestamps_ms=timestamps_ms[first:last],
        timestamp_types=timestamp_types[first:last],
        keys=_column("key", kept.keys, data, wanted),
        values=_column("value", kept.values, data, wanted),
        headers=read_headers(records, numbers, kept, data) if "headers" in wanted else None,
        next_offset=batch_end if records.has_last else int(offsets[-1]) + 1,
    )


def _column(name: str, spans: Spans, data: pa.Buffer, wanted: frozenset[str]) -> pa.Array | None:
    return spans.gather(data) if name in wanted else None


def _offsets(records: RecordBytes, fields: Fields, offset_min: int) -> Longs:
    deltas, ends = fields.offset_deltas, fields.ends
    bases = np.repeat(records.batches.base_offsets, records.counts)
    lasts = np.repeat(records.batches.last_offset_deltas, records.counts)
    records.check((deltas < 0) | (deltas > lasts), ends, "a record's offset is outside its batch")
    offsets = bases + deltas
    is_descending = np.diff(offsets, prepend=offset_min - 1) <= 0
    records.check(is_descending, ends, "a record's offset is not above the previous one")
    return offsets


def _times(records: RecordBytes, deltas: Longs) -> tuple[Longs, npt.NDArray[np.int8]]:
    """Time and timestamp type of each record; sums beyond 64 bits wrap, as in Java."""
    batches, counts = records.batches, records.counts
    is_append = batches.is_append_time
    bases = np.where(is_append, batches.max_timestamps, batches.base_timestamps)
    types = np.repeat(is_append.astype(np.int8), counts)
    return np.repeat(bases, counts) + np.where(types, 0, deltas), types
