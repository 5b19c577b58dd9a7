"""Sets of sequence numbers: a bitmap in pages, of which only those with a set bit are stored.

As text such a set is base64 of a zlib stream of its pages in ascending order. Each is 514 bytes: a
number, big-endian in 2 bytes, and 4,096 bits, lowest first in each byte; the set has `s` where
page `s // 4096` has bit `s % 4096`. No page is empty, so one set has one such form.
"""

import binascii
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, Self

from logbroker.client.audit_format.mark import SEQUENCE_MAX

_PAGE_BITS: Final = 12
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1
_PAGE_BYTES: Final = (1 << _PAGE_BITS) // 8

PAGE_SEQUENCES: Final = 1 << _PAGE_BITS
"""Numbers that a page covers."""

_STORED_BYTES: Final = 2 + _PAGE_BYTES

PAGES_MAX: Final = (SEQUENCE_MAX >> _PAGE_BITS) + 1
"""Pages of the set of all sequence numbers: 2 MiB of bits."""

PART_PAGES_MAX: Final = 512
"""Pages of one part. Its text has 351 KB if nothing can be compressed."""

_TEXT_MAX: Final = (PAGES_MAX * _STORED_BYTES + 4_096) * 4 // 3
"""No set needs a longer text; the 4 KB cover what zlib adds to incompressible data."""

_MEMORY_BYTES: Final = _PAGE_BYTES + 150
"""A page in memory, with its dictionary entry."""


class SequenceSet:
    """A mutable set of numbers in [0, `SEQUENCE_MAX`]; not thread-safe."""

    __slots__ = ("_pages",)

    def __init__(self, sequences: Iterable[int] = ()) -> None:
        """Create a set of these numbers."""
        self._pages: dict[int, bytearray] = {}
        for sequence in sequences:
            self.add(sequence)

    def add(self, sequence: int) -> bool:
        """Add a number; return whether it is new."""
        page = self._pages.get(sequence >> _PAGE_BITS)
        if page is None:
            page = self._pages[sequence >> _PAGE_BITS] = bytearray(_PAGE_BYTES)
        place = (sequence >> 3) & (_PAGE_BYTES - 1)
        before = page[place]
        after = before | 1 << (sequence & 7)
        page[place] = after
        return after != before

    def add_range(self, start: int, end: int) -> bool:
        """Add all of [start, end); return whether some are new. A page costs as three `add`."""
        is_new = False
        while start < end:
            number = start >> _PAGE_BITS
            stop = min(end, number + 1 << _PAGE_BITS)
            before = int.from_bytes(self._pages.get(number, b""), "little")
            after = before | (1 << stop - start) - 1 << (start & _PAGE_MASK)
            self._pages[number] = bytearray(after.to_bytes(_PAGE_BYTES, "little"))
            is_new = is_new or after != before
            start = stop
        return is_new

    def update(self, other: "SequenceSet") -> None:
        """Add all numbers of another set."""
        for number, bits in other._pages.items():  # noqa: SLF001  same class
            own = self._pages.get(number)
            self._pages[number] = bytearray(bits) if own is None else _united(own, bits)

    def union(self, other: "SequenceSet") -> "SequenceSet":
        """Return a new set with the numbers of both."""
        both = self.copy()
        both.update(other)
        return both

    def difference(self, other: "SequenceSet") -> "SequenceSet":
        """Return a new set with the numbers that are not in `other`."""
        rest = SequenceSet()
        for number, bits in self._pages.items():
            others = other._pages.get(number)  # noqa: SLF001
            left = bits if others is None else _without(bits, others)
            if left.strip(b"\0"):
                rest._pages[number] = bytearray(left)
        return rest

    def difference_count(self, other: "SequenceSet") -> int:
        """Return how many numbers are not in `other`."""
        count = 0
        for number, bits in self._pages.items():
            own = int.from_bytes(bits)
            others = other._pages.get(number)  # noqa: SLF001
            count += (own if others is None else own & ~int.from_bytes(others)).bit_count()
        return count

    def copy(self) -> "SequenceSet":
        """Return a copy."""
        twin = SequenceSet()
        twin._pages = {number: bytearray(bits) for number, bits in self._pages.items()}
        return twin

    def parts(self) -> "Iterator[SequenceSet]":
        """Yield disjoint parts of at most `PART_PAGES_MAX` pages, lowest first."""
        numbers = sorted(self._pages)
        for start in range(0, len(numbers), PART_PAGES_MAX):
            part = SequenceSet()
            part._pages = {n: self._pages[n] for n in numbers[start : start + PART_PAGES_MAX]}
            yield part

    def blocks(self, pages: int) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of `pages` pages as bits, lowest first in each byte, with their numbers.

        Blocks without a set bit are omitted.
        """
        for number, group in groupby(sorted(self._pages), lambda page: page // pages):
            block = bytearray(pages * _PAGE_BYTES)
            for page in group:
                start = page % pages * _PAGE_BYTES
                block[start : start + _PAGE_BYTES] = self._pages[page]
            yield number, bytes(block)

    @property
    def pages(self) -> int:
        """The number of stored pages."""
        return len(self._pages)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory in use."""
        return len(self._pages) * _MEMORY_BYTES

    def encode(self) -> str:
        """Return the set as text; equal sets have equal texts."""
        stored = [number.to_bytes(2) + self._pages[number] for number in sorted(self._pages)]
        return binascii.b2a_base64(zlib.compress(b"".join(stored)), newline=False).decode()

    @classmethod
    def decode(cls, text: str, pages_max: int = PAGES_MAX) -> Self:
        """Return the set of a text from an untrusted source, of at most `pages_max` pages.

        Raises:
            ValueError: the text is invalid, or has more pages; no more than that is expanded.
        """
        if len(text) > _TEXT_MAX:
            raise ValueError(f"set too long: {len(text)} characters, max {_TEXT_MAX}")
        stored = _expand(binascii.a2b_base64(text, strict_mode=True), pages_max * _STORED_BYTES)
        if len(stored) % _STORED_BYTES:
            raise ValueError("set ends inside a page")
        found = cls()
        last = -1
        for start in range(0, len(stored), _STORED_BYTES):
            number = int.from_bytes(stored[start : start + 2])
            bits = stored[start + 2 : start + _STORED_BYTES]
            if not last < number < PAGES_MAX or not bits.strip(b"\0"):
                raise ValueError(f"invalid set: page {number} follows page {last}, or is empty")
            found._pages[number] = bytearray(bits)
            last = number
        return found

    def __contains__(self, sequence: int) -> bool:
        """Whether a number is in the set."""
        page = self._pages.get(sequence >> _PAGE_BITS)
        return bool(page and page[(sequence >> 3) & (_PAGE_BYTES - 1)] >> (sequence & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        """The numbers, ascending."""
        for number in sorted(self._pages):
            bits = int.from_bytes(self._pages[number], "little")
            while bits:
                lowest = bits & -bits
                yield (number << _PAGE_BITS) + lowest.bit_length() - 1
                bits ^= lowest

    def __len__(self) -> int:
        """The number of elements."""
        return sum(int.from_bytes(bits).bit_count() for bits in self._pages.values())

    def __bool__(self) -> bool:
        """Whether the set has elements."""
        return bool(self._pages)

    def __eq__(self, other: object) -> bool:
        """Whether both sets have the same elements."""
        return isinstance(other, SequenceSet) and self._pages == other._pages

    def __repr__(self) -> str:
        """The size of the set, for logs and failed tests."""
        return f"<SequenceSet of {len(self)}>"

    # Mutable.
    __hash__ = None  # type: ignore[assignment]


def _united(one: bytearray, other: bytearray) -> bytearray:
    return bytearray((int.from_bytes(one) | int.from_bytes(other)).to_bytes(_PAGE_BYTES))


def _without(bits: bytearray, others: bytearray) -> bytes:
    return (int.from_bytes(bits) & ~int.from_bytes(others)).to_bytes(_PAGE_BYTES)


def _expand(packed: bytes, bytes_max: int) -> bytes:
    """Decompress a zlib stream.

    Raises:
        ValueError: `packed` is not exactly one zlib stream, or expands to more than `bytes_max`.
    """
    stream = zlib.decompressobj()
    try:
        # One byte more than is allowed, so that the end of a stream of just that many is read.
        expanded = stream.decompress(packed, bytes_max + 1)
    except zlib.error as error:
        raise ValueError(f"set is not a zlib stream: {error}") from None
    if not stream.eof or stream.unused_data or len(expanded) > bytes_max:
        raise ValueError("set is truncated, too large, or followed by other data")
    return expanded
