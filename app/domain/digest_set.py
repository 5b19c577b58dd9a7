"""A compact set of 64-bit digests."""

from array import array
from typing import Final

_FREE: Final = 0
_SLOTS_AT_FIRST: Final = 1_024

ENTRIES_MAX: Final = 2_000_000
"""Some 32 MB, and half as much again while the table grows for the last time."""


class DigestSet:
    """A hash table with open addressing that grows up to `entries_max` digests.

    Digests are evenly distributed over [0, 2**64), so their low bits are the first slot.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._slots = _empty(_SLOTS_AT_FIRST)
        self._count = 0
        self.is_full = False
        """Whether a digest was rejected because the set is full."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: int) -> bool:
        digest = digest or 1  # 0 is `_FREE`
        return self._slots[self._place(digest)] == digest

    def add(self, digest: int) -> bool:
        """Insert a digest; False if the set is full."""
        digest = digest or 1
        place = self._place(digest)
        if self._slots[place] == digest:
            return True
        if self._count >= self._entries_max:
            self.is_full = True
            return False
        self._slots[place] = digest
        self._count += 1
        if 4 * self._count > 3 * len(self._slots):
            self._grow()
        return True

    def _place(self, digest: int) -> int:
        """The slot of the digest, or the free one to insert it at."""
        slots, mask = self._slots, len(self._slots) - 1
        place = digest & mask
        while (found := slots[place]) != _FREE and found != digest:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        before, self._slots = self._slots, _empty(2 * len(self._slots))
        for digest in before:
            if digest != _FREE:
                self._slots[self._place(digest)] = digest


def _empty(slots: int) -> "array[int]":
    return array("Q", [_FREE]) * slots
