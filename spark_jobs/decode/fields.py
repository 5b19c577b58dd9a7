"""The fields of many records at once: numbers, and the spans of keys, values and headers."""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.decode.record_bytes import RecordBytes
from spark_jobs.decode.spans import Spans
from spark_jobs.decode.varints import Flags, Longs, VarintBytes

_ATTRIBUTES_BYTES: Final = 1
NULL: Final = -1


class Fields(NamedTuple):
    """One element per record; headers are in [`headers_at`, `ends`), with their count first."""

    offset_deltas: Longs
    timestamp_deltas: Longs
    keys: Spans
    values: Spans
    headers_at: Longs
    ends: Longs

    def part(self, start: int, end: int) -> "Fields":
        """The records with indexes [start, end)."""
        return Fields(
            self.offset_deltas[start:end],
            self.timestamp_deltas[start:end],
            self.keys.part(start, end),
            self.values.part(start, end),
            self.headers_at[start:end],
            self.ends[start:end],
        )


def read_fields(records: RecordBytes, numbers: VarintBytes) -> Fields:
    """The fields of `records`, without parsing headers.

    Raises:
        UnreadableBatch: a record has another length than stated, or a field exceeds it.
    """
    ends = np.empty_like(records.starts)
    ends[:-1], ends[-1:] = records.starts[1:], records.end
    lengths, body, is_bad = numbers.int32(records.starts)
    is_bad |= body + lengths != ends
    records.check(is_bad, ends, "a record's length is wrong")
    timestamp_deltas, position, is_bad = numbers.int64(body + _ATTRIBUTES_BYTES)
    records.check(is_bad, ends, "a record's time is invalid")
    offset_deltas, position, is_bad = numbers.int32(position)
    records.check(is_bad, ends, "a record's offset is invalid")
    keys = _spans_inside(records, numbers, position, ends)
    values = _spans_inside(records, numbers, keys.ends, ends)
    return Fields(offset_deltas, timestamp_deltas, keys, values, values.ends, ends)


def _spans_inside(
    records: RecordBytes, numbers: VarintBytes, at: Longs, record_ends: Longs
) -> Spans:
    spans, is_bad = read_spans(numbers, at)
    is_bad |= spans.ends >= record_ends
    records.check(is_bad, record_ends, "a record's key or value exceeds the record")
    return spans


def read_spans(numbers: VarintBytes, at: Longs) -> tuple[Spans, Flags]:
    """Length-prefixed byte strings, -1 for null, and which lengths are invalid."""
    lengths, starts, is_bad = numbers.int32(at)
    is_null = lengths == NULL
    is_bad |= lengths < NULL
    return Spans(starts, starts + np.maximum(lengths, 0), is_null), is_bad
