"""Headers of many records as an Arrow column of lists.

The first headers of all records are read together, then the second ones, and so on. When few
records have headers left, the rest is read one by one, because a round has a fixed cost.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from logbroker.errors import CorruptBatch
from logbroker.records.varint import read_varint
from spark_jobs.decode.fields import NULL, Fields, read_spans
from spark_jobs.decode.record_bytes import RecordBytes
from spark_jobs.decode.spans import Spans
from spark_jobs.decode.varints import Longs, VarintBytes

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

HEADERS: Final = pa.list_(pa.field("element", _HEADER))
"""The type of `headers` in Spark's Kafka connector."""

_HEADER_BYTES_MIN: Final = 2
"""An empty key and a null value."""

HEADERS_MAX: Final = 2**20
"""Per record. Two bytes of a well-compressed batch become about forty bytes of an array."""

_ROUND_MIN: Final = 32
"""With fewer records left, a round costs more than a loop in Python."""

_FAULT: Final = "a record's headers are malformed"


def read_headers(
    records: RecordBytes, numbers: VarintBytes, fields: Fields, data: pa.Buffer
) -> pa.Array:
    """The headers of each record, in their order; null for a record without.

    Raises:
        UnreadableBatch: headers do not end with their record, or a key is null.
    """
    counts, at, is_bad = numbers.int32(fields.headers_at)
    is_bad |= (counts < 0) | (counts * _HEADER_BYTES_MIN > fields.ends - at)
    is_bad |= (counts == 0) & (at != fields.ends)
    is_bad |= counts > HEADERS_MAX
    records.check(is_bad, fields.ends, _FAULT)
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    flat = _FlatHeaders(records, numbers, int(firsts[-1]))
    flat.read(at, fields.ends, counts, firsts[:-1])
    return pa.ListArray.from_arrays(
        pa.array(firsts.astype(np.int32)),
        flat.column(data),
        type=HEADERS,
        mask=pa.array(counts == 0),
    )


class _FlatHeaders:
    """The spans of all headers, record after record."""

    def __init__(self, records: RecordBytes, numbers: VarintBytes, count: int) -> None:
        self._records = records
        self._numbers = numbers
        self._keys = _empty_spans(count)
        self._values = _empty_spans(count)

    def read(self, at: Longs, ends: Longs, left: Longs, slots: Longs) -> None:
        """Read `left` headers of each record from `at` to `ends`, the first of them into `slots`.

        Raises:
            UnreadableBatch: see `read_headers`.
        """
        while len(at := _kept(at, left)) >= _ROUND_MIN:
            ends, slots, left = _kept(ends, left), _kept(slots, left), _kept(left, left)
            at = self._read_round(at, ends, slots)
            slots, left = slots + 1, left - 1
            self._records.check((left == 0) & (at != ends), ends, _FAULT)
        rest = (at, _kept(ends, left), _kept(slots, left), _kept(left, left))
        for one in zip(*(numbers.tolist() for numbers in rest), strict=True):
            self._read_one(*one)

    def _read_round(self, at: Longs, ends: Longs, slots: Longs) -> Longs:
        keys, is_bad = read_spans(self._numbers, at)
        is_bad |= keys.is_null | (keys.ends > ends)
        self._records.check(is_bad, ends, _FAULT)
        values, is_bad = read_spans(self._numbers, keys.ends)
        is_bad |= values.ends > ends
        self._records.check(is_bad, ends, _FAULT)
        _put(self._keys, slots, keys)
        _put(self._values, slots, values)
        return values.ends

    def _read_one(self, at: int, end: int, slot: int, left: int) -> None:
        for index in range(slot, slot + left):
            at = self._put_one(self._keys, index, at, end)
            if self._keys.is_null[index]:
                raise self._records.fault(end, _FAULT)
            at = self._put_one(self._values, index, at, end)
        if at != end:
            raise self._records.fault(end, _FAULT)

    def _put_one(self, spans: Spans, index: int, at: int, end: int) -> int:
        try:
            length, start = read_varint(self._records.data, at)
        except CorruptBatch:
            raise self._records.fault(end, _FAULT) from None
        after = start + max(length, 0)
        if length < NULL or after > end:
            raise self._records.fault(end, _FAULT)
        spans.starts[index], spans.ends[index], spans.is_null[index] = start, after, length == NULL
        return after

    def column(self, data: pa.Buffer) -> pa.Array:
        """All headers as one column of structs."""
        keys, values = _text(self._keys.gather(data)), self._values.gather(data)
        return pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))


def _kept(numbers: Longs, left: Longs) -> Longs:
    """The elements of records with headers left."""
    return numbers if left.all() else numbers[left > 0]


def _empty_spans(count: int) -> Spans:
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    return Spans(starts, ends, np.empty(count, np.bool_))


def _put(spans: Spans, slots: Longs, read: Spans) -> None:
    for column, part in zip(spans, read, strict=True):
        column[slots] = part


def _text(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # As in Java: brokers do not check keys, and one that is not UTF-8 must not block a chunk.
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
