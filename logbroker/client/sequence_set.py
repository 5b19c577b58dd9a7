"""Sets of sequence numbers: bits in pages, of which only those are kept that have a bit set.

As text such a set is base64 of a zlib stream of its pages in ascending order. Each is 514 bytes: a
number, big-endian in 2 bytes, and 4,096 bits, lowest first in each byte; the set has `s` where
page `s // 4096` has bit `s % 4096`. No page is empty, so one set has one such form.
"""

import binascii
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, Self

from logbroker.client.audit_mark import SEQUENCE_MAX

_PAGE_BITS: Final = 12
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1
_PAGE_BYTES: Final = (1 << _PAGE_BITS) // 8

PAGE_SEQUENCES: Final = 1 << _PAGE_BITS
"""Numbers that a page has a bit for."""

_STORED_BYTES: Final = 2 + _PAGE_BYTES

PAGES_MAX: Final = (SEQUENCE_MAX >> _PAGE_BITS) + 1
"""Pages of a set that has every sequence number there is: 2 MiB of bits."""

PART_PAGES_MAX: Final = 512
"""Pages of one part: its text, if nothing can be compressed, has 351 KB."""

_TEXT_MAX: Final = (PAGES_MAX * _STORED_BYTES + 4_096) * 4 // 3
"""No set needs a longer text; the 4 KB are what zlib adds to what it cannot compress, and more."""

_KEPT_BYTES: Final = _PAGE_BYTES + 150
"""A page in memory, with its place in a dictionary."""


class SequenceSet:
    """A mutable set of numbers in [0, `SEQUENCE_MAX`]; not safe on several threads."""

    __slots__ = ("_pages",)

    def __init__(self, sequences: Iterable[int] = ()) -> None:
        """The set of these."""
        self._pages: dict[int, bytearray] = {}
        for sequence in sequences:
            self.add(sequence)

    def add(self, sequence: int) -> bool:
        """Take a number in; whether it is new."""
        page = self._pages.get(sequence >> _PAGE_BITS)
        if page is None:
            page = self._pages[sequence >> _PAGE_BITS] = bytearray(_PAGE_BYTES)
        place = (sequence >> 3) & (_PAGE_BYTES - 1)
        before = page[place]
        after = before | 1 << (sequence & 7)
        page[place] = after
        return after != before

    def add_range(self, start: int, end: int) -> bool:
        """Take in all of [start, end); whether some are new. Each 4,096 cost as much as three."""
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
        """Take in all of another set."""
        for number, bits in other._pages.items():  # noqa: SLF001  of its kind
            own = self._pages.get(number)
            self._pages[number] = bytearray(bits) if own is None else _united(own, bits)

    def union(self, other: "SequenceSet") -> "SequenceSet":
        """A new set of what is in either."""
        both = self.copy()
        both.update(other)
        return both

    def difference(self, other: "SequenceSet") -> "SequenceSet":
        """A new set of what is in this one and not in the other."""
        rest = SequenceSet()
        for number, bits in self._pages.items():
            taken = other._pages.get(number)  # noqa: SLF001
            left = bits if taken is None else _without(bits, taken)
            if left.strip(b"\0"):
                rest._pages[number] = bytearray(left)
        return rest

    def difference_count(self, other: "SequenceSet") -> int:
        """How many are in this one and not in the other."""
        count = 0
        for number, bits in self._pages.items():
            own = int.from_bytes(bits)
            taken = other._pages.get(number)  # noqa: SLF001
            count += (own if taken is None else own & ~int.from_bytes(taken)).bit_count()
        return count

    def copy(self) -> "SequenceSet":
        """A new set of the same."""
        twin = SequenceSet()
        twin._pages = {number: bytearray(bits) for number, bits in self._pages.items()}
        return twin

    def parts(self) -> "Iterator[SequenceSet]":
        """The set in disjoint parts of at most `PART_PAGES_MAX` pages, lowest first."""
        numbers = sorted(self._pages)
        for start in range(0, len(numbers), PART_PAGES_MAX):
            part = SequenceSet()
            part._pages = {n: self._pages[n] for n in numbers[start : start + PART_PAGES_MAX]}
            yield part

    def blocks(self, pages: int) -> Iterator[tuple[int, bytes]]:
        """The bits in blocks of so many pages, lowest first in each byte, with their numbers.

        Blocks without a bit are left out.
        """
        for number, group in groupby(sorted(self._pages), lambda page: page // pages):
            block = bytearray(pages * _PAGE_BYTES)
            for page in group:
                start = page % pages * _PAGE_BYTES
                block[start : start + _PAGE_BYTES] = self._pages[page]
            yield number, bytes(block)

    @property
    def pages(self) -> int:
        """How many pages are kept."""
        return len(self._pages)

    @property
    def bytes_kept(self) -> int:
        """About how much memory it takes."""
        return len(self._pages) * _KEPT_BYTES

    def encode(self) -> str:
        """The set as text: the same one for the same set."""
        stored = [number.to_bytes(2) + self._pages[number] for number in sorted(self._pages)]
        return binascii.b2a_base64(zlib.compress(b"".join(stored)), newline=False).decode()

    @classmethod
    def decode(cls, text: str, pages_max: int = PAGES_MAX) -> Self:
        """The set of a text of at most `pages_max` pages, whoever wrote it.

        Raises:
            ValueError: it is none of `encode`'s, or a set of more pages: no more of it is expanded.
        """
        if len(text) > _TEXT_MAX:
            raise ValueError(f"a set of {len(text)} characters; {_TEXT_MAX} are allowed")
        stored = _expand(binascii.a2b_base64(text, strict_mode=True), pages_max * _STORED_BYTES)
        if len(stored) % _STORED_BYTES:
            raise ValueError("a set ends inside a page")
        found = cls()
        last = -1
        for start in range(0, len(stored), _STORED_BYTES):
            number = int.from_bytes(stored[start : start + 2])
            bits = stored[start + 2 : start + _STORED_BYTES]
            if not last < number < PAGES_MAX or not bits.strip(b"\0"):
                raise ValueError(f"a set has page {number} after {last}, or that page is empty")
            found._pages[number] = bytearray(bits)
            last = number
        return found

    def __contains__(self, sequence: int) -> bool:
        """Whether a number is in it."""
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
        """How many there are."""
        return sum(int.from_bytes(bits).bit_count() for bits in self._pages.values())

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._pages)

    def __eq__(self, other: object) -> bool:
        """Whether the same numbers are in both."""
        return isinstance(other, SequenceSet) and self._pages == other._pages

    def __repr__(self) -> str:
        """How many there are, for a reader of a failed test or a log."""
        return f"<SequenceSet of {len(self)}>"

    # It changes.
    __hash__ = None  # type: ignore[assignment]


def _united(one: bytearray, other: bytearray) -> bytearray:
    return bytearray((int.from_bytes(one) | int.from_bytes(other)).to_bytes(_PAGE_BYTES))


def _without(bits: bytearray, taken: bytearray) -> bytes:
    return (int.from_bytes(bits) & ~int.from_bytes(taken)).to_bytes(_PAGE_BYTES)


def _expand(packed: bytes, bytes_max: int) -> bytes:
    """What was compressed.

    Raises:
        ValueError: it is no zlib stream and nothing else, or expands to more than `bytes_max`.
    """
    stream = zlib.decompressobj()
    try:
        # One byte more than is allowed, so that the end of a stream of just that many is read.
        expanded = stream.decompress(packed, bytes_max + 1)
    except zlib.error as error:
        raise ValueError(f"a set is not compressed as such: {error}") from None
    if not stream.eof or stream.unused_data or len(expanded) > bytes_max:
        raise ValueError("a set is cut short, too long, or something follows it")
    return expanded
