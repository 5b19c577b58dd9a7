"""Where records begin: each says how long it is, so only a walk along the lengths can tell.

Many batches are walked in step, with one call of numpy for the next record of all of them; few, one
after the other in Python. Neither looks at the signs of short lengths: whoever reads the lengths
again, all at once, notices a negative one. Each step goes forward, whatever the bytes say.
"""

from typing import Final, cast

import numpy as np
import numpy.typing as npt

from logbroker.errors import CorruptBatch
from logbroker.records.varint import read_varint
from spark_jobs.decode.varints import Longs


def walk(data: bytes, position: int, end: int) -> tuple[list[int], int]:
    """Where the records begin that begin in [`position`, `end`), and the end of the last one.

    Raises:
        CorruptBatch: a length of three bytes and more is negative or does not fit 32 bits.
    """
    starts: list[int] = []
    add = starts.append
    while position < end:
        add(position)
        if (low := data[position]) < 0x80:
            position += 1 + (low >> 1)
        elif (high := data[position + 1]) < 0x80:
            # 2 + (high << 7 | low - 128) / 2, as in `_steps`.
            position += (high << 6) + (low >> 1) - 62
        else:
            position = _end_of_long_one(data, position)
    return starts, position


def _end_of_long_one(data: bytes, position: int) -> int:
    length, body = read_varint(data, position)
    if length < 0:
        raise CorruptBatch(f"a record has length {length}")
    return body + length


def walk_in_step(data: bytes, counts: Longs, bodies: Longs, ends: Longs) -> Longs | None:
    """Where the records of all batches begin, or None where this way cannot tell.

    A batch has `counts` records from `bodies` to `ends`, and the batches lie one after the other.
    None is for lengths of three bytes and more, and for batches that are not as announced.
    """
    words = np.ndarray(shape=(len(data) - 1,), dtype="<u2", buffer=data, strides=(1,))
    by_count = np.argsort(-counts, kind="stable")
    batches_left = np.searchsorted(-counts[by_count], -np.arange(counts.max(initial=0)))
    slots = (np.cumsum(counts) - counts)[by_count]
    positions = bodies[by_count]
    starts = np.empty(counts.sum(), np.int64)
    for nth, batches in enumerate(batches_left.tolist()):
        here = positions[:batches]
        starts[slots[:batches] + nth] = here
        here += _STEPS[words[here]]
        np.minimum(here, len(words) - 1, out=here)
    return starts if np.array_equal(positions, ends[by_count]) else None


def _steps() -> npt.NDArray[np.int64]:
    """Bytes to the next record, by the first two bytes of this one as a little-endian number."""
    low, high = np.arange(2**16) & 0xFF, np.arange(2**16) >> 8
    of_one_byte = 1 + (low >> 1)
    of_two_bytes = np.where(high < 0x80, 2 + (high << 6 | (low & 0x7F) >> 1), _TOO_LONG)
    return cast("npt.NDArray[np.int64]", np.where(low < 0x80, of_one_byte, of_two_bytes))


_TOO_LONG: Final = 2**31
"""Leads past the end, where no batch ends."""

_STEPS: Final = _steps()
