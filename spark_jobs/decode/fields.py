"""The fields of many records at once: numbers, and where keys, values and headers lie."""

from typing import Final, NamedTuple

import numpy as np

from spark_jobs.decode.record_bytes import RecordBytes
from spark_jobs.decode.spans import Spans
from spark_jobs.decode.varints import Flags, Longs, VarintBytes

_ATTRIBUTES_BYTES: Final = 1
NULL: Final = -1


class Fields(NamedTuple):
    """One element a record; headers lie in [`headers_at`, `ends`), their count first."""

    offset_deltas: Longs
    timestamp_deltas: Longs
    keys: Spans
    values: Spans
    headers_at: Longs
    ends: Longs

    def part(self, start: int, end: int) -> "Fields":
        """Those of the indexes [start, end)."""
        return Fields(
            self.offset_deltas[start:end],
            self.timestamp_deltas[start:end],
            self.keys.part(start, end),
            self.values.part(start, end),
            self.headers_at[start:end],
            self.ends[start:end],
        )


def read_fields(records: RecordBytes, numbers: VarintBytes) -> Fields:
    """The fields of `records`, all but their headers, which are not looked at.

    Raises:
        UnreadableBatch: a record is not as long as it says, or a field reaches past its end.
    """
    ends = np.empty_like(records.starts)
    ends[:-1], ends[-1:] = records.starts[1:], records.end
    lengths, body, is_bad = numbers.int32(records.starts)
    is_bad |= body + lengths != ends
    records.check(is_bad, ends, "a record is not as long as it says")
    timestamp_deltas, position, is_bad = numbers.int64(body + _ATTRIBUTES_BYTES)
    records.check(is_bad, ends, "a record's time is no number")
    offset_deltas, position, is_bad = numbers.int32(position)
    records.check(is_bad, ends, "a record's offset is no number")
    keys = _spans_inside(records, numbers, position, ends)
    values = _spans_inside(records, numbers, keys.ends, ends)
    return Fields(offset_deltas, timestamp_deltas, keys, values, values.ends, ends)


def _spans_inside(
    records: RecordBytes, numbers: VarintBytes, at: Longs, record_ends: Longs
) -> Spans:
    spans, is_bad = read_spans(numbers, at)
    is_bad |= spans.ends >= record_ends
    records.check(is_bad, record_ends, "a record's key or value reaches past its end")
    return spans


def read_spans(numbers: VarintBytes, at: Longs) -> tuple[Spans, Flags]:
    """Byte strings behind their lengths, -1 for null; and which have a length that is none."""
    lengths, starts, is_bad = numbers.int32(at)
    is_null = lengths == NULL
    is_bad |= lengths < NULL
    return Spans(starts, starts + np.maximum(lengths, 0), is_null), is_bad
