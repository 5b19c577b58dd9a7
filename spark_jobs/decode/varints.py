"""Decodes zig-zag varints at many positions at once.

Eight bytes are gathered at each position as one little-endian number. The lowest byte without its
high bit ends the varint; its groups of seven bits are joined in three steps. Only rare numbers of
nine or ten bytes are read one by one.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from logbroker.errors import CorruptBatch
from logbroker.records.varint import read_varlong

PADDING: Final = bytes(64)
"""Follows the last record. A truncated record is read past its end, by three numbers of at most ten
bytes and the eight bytes of a gather, before its end is checked.
"""

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_WORD_BYTES: Final = 8
_INT32_BYTES_MAX: Final = 5
_UINT32_MAX: Final = np.uint64(2**32 - 1)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LOW_BITS: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE: Final = np.uint64(1)


class Varints(NamedTuple):
    """Numbers, the positions after each, and which are invalid: truncated or too large."""

    values: Longs
    after: Longs
    is_bad: Flags


class VarintBytes:
    """Bytes that end with `PADDING`, with varints at known positions."""

    __slots__ = ("_data", "_words")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._words: Words = np.ndarray(
            shape=(len(data) - _WORD_BYTES + 1,), dtype="<u8", buffer=data, strides=(1,)
        )

    def int32(self, at: Longs) -> Varints:
        """The 32-bit numbers at positions `at`."""
        folded, sizes = _folded(self._words[at])
        is_bad = (sizes > _INT32_BYTES_MAX) | (folded > _UINT32_MAX)
        return Varints(_unfolded(folded), at + sizes, is_bad)

    def int64(self, at: Longs) -> Varints:
        """The 64-bit numbers at positions `at`."""
        folded, sizes = _folded(self._words[at])
        numbers = Varints(_unfolded(folded), at + sizes, np.zeros(len(at), np.bool_))
        for index in np.flatnonzero(sizes > _WORD_BYTES).tolist():
            self._read_long_number(numbers, index, int(at[index]))
        return numbers

    def _read_long_number(self, numbers: Varints, index: int, at: int) -> None:
        try:
            numbers.values[index], numbers.after[index] = read_varlong(self._data, at)
        except CorruptBatch:
            numbers.is_bad[index] = True


def _folded(words: Words) -> tuple[Words, npt.NDArray[np.uint8]]:
    """The zig-zag encoded numbers and their sizes; a number is wrong if its size exceeds 8."""
    ends = ~words & _HIGH_BITS
    below_end = (ends & (~ends + _ONE)) - _ONE
    sizes = (np.bitwise_count(below_end) >> 3) + 1
    groups = words & below_end & _LOW_BITS
    for shift, low, high in _STEPS:
        groups = (groups & low) | ((groups & high) >> shift)
    return groups, sizes.astype(np.uint8, copy=False)


_STEPS: Final = (
    (np.uint64(1), np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)),
    (np.uint64(2), np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)),
    (np.uint64(4), np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)),
)
"""Join groups of 7 bits in 8 to groups of 14 in 16, of 28 in 32, and of 56 in 64."""


def _unfolded(folded: Words) -> Longs:
    return (folded >> _ONE).view(np.int64) ^ -(folded & _ONE).view(np.int64)
