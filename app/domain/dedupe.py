"""What a replay has seen already, in bounded memory."""

from array import array
from hashlib import blake2b
from typing import Final

_SLOTS_PER_ENTRY: Final = 1.5
"""Emptier than this, a table wastes memory; fuller, it is searched for long."""

_FREE: Final = 0

_FREE_SLOTS: Final = memoryview(array("q", [_FREE]) * 4_096)
"""So many are emptied at a time."""


def event_digest(event_id: str, value: bytes) -> int:
    """The 64 bits that stand for an event: the same id with the same body is the same event.

    A producer that sends one id with two bodies has made two events, and both are owed. It is
    Python's own hash, SipHash under a key that every process chooses for itself, so nobody can
    make two events that share a digest. By chance, an event shares one with any of a million
    others once in 10^13 events.
    """
    return hash((event_id, value))


def lasting_digest(event_id: str, value: bytes) -> int:
    """The same in the range of [0, 2**64), and equal in every process and data centre.

    It costs more, and who can publish can make two events that share one, with billions of tries.
    """
    digest = blake2b(event_id.encode() + b"\0" + value, digest_size=8)
    return int.from_bytes(digest.digest(), "big")


class SeenHashes:
    """The digests of the last different events: at most `entries_max`, at least half as many.

    They are in two tables of half the size each. When the younger one is full, the older one is
    forgotten. An entry costs 12 to 24 bytes, where a set of Python's would take over a hundred.
    """

    def __init__(self, entries_max: int) -> None:
        self._generation_max = max(1, (entries_max + 1) // 2)
        self._mask = _slots(self._generation_max) - 1
        self._young = self._empty()
        self._old: array[int] = array("q")
        self._count = 0

    def add(self, digest: int) -> bool:
        """Remember a digest: True if it is new."""
        digest = digest or 1  # what `_FREE` stands for
        young, mask = self._young, self._mask
        slot = digest & mask
        while (found := young[slot]) != _FREE:
            if found == digest:
                return False
            slot = (slot + 1) & mask
        if self._old and self._is_old(digest):
            return False
        young[slot] = digest
        self._count += 1
        if self._count >= self._generation_max:
            self._forget_older()
        return True

    def _forget_older(self) -> None:
        """Let the older table be the younger one, with nothing in it."""
        # A new table each time would cost more than its size: what is given back in pieces so
        # large is not always to be had again.
        emptied = _emptied(self._old) if self._old else self._empty()
        self._old, self._young, self._count = self._young, emptied, 0

    def _is_old(self, digest: int) -> bool:
        old, mask = self._old, self._mask
        slot = digest & mask
        while (found := old[slot]) != _FREE:
            if found == digest:
                return True
            slot = (slot + 1) & mask
        return False

    def _empty(self) -> "array[int]":
        return array("q", [_FREE]) * (self._mask + 1)


def _emptied(table: "array[int]") -> "array[int]":
    slots = memoryview(table)
    for start in range(0, len(slots), len(_FREE_SLOTS)):
        part = slots[start : start + len(_FREE_SLOTS)]
        part[:] = _FREE_SLOTS[: len(part)]
    return table


def _slots(entries: int) -> int:
    """The power of two that holds so many entries and stays a third empty."""
    return 1 << max(1, int(entries * _SLOTS_PER_ENTRY)).bit_length()
