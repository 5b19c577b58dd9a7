"""Many digests of 64 bits, in little memory."""

from array import array
from typing import Final

_FREE: Final = 0
_SLOTS_AT_FIRST: Final = 1_024

ENTRIES_MAX: Final = 2_000_000
"""Some 32 MB, and half as much again for the moment in which the table last grows."""


class DigestSet:
    """A table that doubles before it is three quarters full, up to `entries_max` digests.

    Digests lie in [0, 2**64) and are spread evenly over it, so each is looked for at the place that
    its own low bits name, and then behind it.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._slots = _empty(_SLOTS_AT_FIRST)
        self._count = 0
        self.is_full = False
        """Whether a digest was not taken, for want of room."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: int) -> bool:
        digest = digest or 1  # what `_FREE` stands for
        return self._slots[self._place(digest)] == digest

    def add(self, digest: int) -> bool:
        """Take in a digest; False when there is no room for it."""
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
        """Where the digest is, or where it would be put."""
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
