"""Spans of a buffer, copied together into an Arrow column by one C++ call."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.decode.varints import Flags, Longs

SPANS_BYTES_MAX: Final = 2**31 - 1
"""Offsets of Arrow's binary arrays have 32 bits."""


class Spans(NamedTuple):
    """Half-open spans in ascending order without overlap; a null one is empty."""

    starts: Longs
    ends: Longs
    is_null: Flags

    def part(self, start: int, end: int) -> "Spans":
        """The spans with indexes [start, end)."""
        return Spans(self.starts[start:end], self.ends[start:end], self.is_null[start:end])

    def gather(self, data: pa.Buffer) -> pa.Array:
        """A copy of the spans of `data`, as a binary array."""
        count = len(self.starts)
        if not count:
            return pa.array([], pa.binary())
        # Spans and the gaps between them are one binary array over `data`; the spans are its even
        # elements.
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2] = self.starts
        offsets[1::2] = self.ends
        buffers = [None, pa.py_buffer(offsets), data]
        elements = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        even = np.arange(0, 2 * count, 2, dtype=np.int32)
        return elements.take(pa.array(even, mask=self.is_null if self.is_null.any() else None))
