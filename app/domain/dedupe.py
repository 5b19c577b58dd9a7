"""Digests of events, and bounded sets of digests that detect duplicates."""

from array import array
from collections import deque
from hashlib import blake2b
from typing import Final

_SLOTS_PER_ENTRY: Final = 1.5
"""A larger factor wastes memory; a smaller one makes lookups slow."""

_FREE: Final = 0

_FREE_SLOTS: Final = memoryview(array("q", [_FREE]) * 4_096)
"""Slots that are cleared at a time."""


def event_digest(event_id: str, value: bytes) -> int:
    """A 64-bit digest of an event's id and body, valid in this process only.

    One id with two bodies is two events, and both are delivered. The digest is Python's own hash:
    SipHash under a random key of the process, so that no publisher can craft a collision. An event
    collides with any of a million others once in 10^13 events.
    """
    return hash((event_id, value))


def lasting_digest(event_id: str, value: bytes) -> int:
    """A digest in [0, 2**64) of an event's id and body, equal in all processes and data centres.

    It is slower, and a publisher could craft a collision with billions of attempts.
    """
    digest = blake2b(event_id.encode() + b"\0" + value, digest_size=8)
    return int.from_bytes(digest.digest(), "big")


class RecentDigests:
    """The last `entries_max` different digests, in exact order of insertion."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._known: set[int] = set()
        self._by_age: deque[int] = deque()

    def __contains__(self, digest: int) -> bool:
        return digest in self._known

    def add(self, digest: int) -> None:
        """Insert a digest and evict the oldest one if the set is full."""
        if digest in self._known:
            return
        if len(self._by_age) == self._entries_max:
            self._known.remove(self._by_age.popleft())
        self._known.add(digest)
        self._by_age.append(digest)


class SeenHashes:
    """The last different digests, between `entries_max / 2` and `entries_max` of them.

    Two hash tables of half the size hold them. When the younger table is full, the older one is
    cleared and takes its place. An entry takes 12 to 24 bytes; in a `set` it takes over 100.
    """

    def __init__(self, entries_max: int) -> None:
        self._generation_max = max(1, (entries_max + 1) // 2)
        self._mask = _slots(self._generation_max) - 1
        self._young = self._empty()
        self._old: array[int] = array("q")
        self._count = 0

    def add(self, digest: int) -> bool:
        """Insert a digest; True if it is new."""
        digest = digest or 1  # 0 is `_FREE`
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
            self._swap_tables()
        return True

    def _swap_tables(self) -> None:
        """Clear the older table and make it the younger one."""
        # Reused, not reallocated: memory freed in pieces this large is not always reusable.
        cleared = _cleared(self._old) if self._old else self._empty()
        self._old, self._young, self._count = self._young, cleared, 0

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


def _cleared(table: "array[int]") -> "array[int]":
    slots = memoryview(table)
    for start in range(0, len(slots), len(_FREE_SLOTS)):
        part = slots[start : start + len(_FREE_SLOTS)]
        part[:] = _FREE_SLOTS[: len(part)]
    return table


def _slots(entries: int) -> int:
    """The smallest power of two that holds `entries` and leaves a third empty."""
    return 1 << max(1, int(entries * _SLOTS_PER_ENTRY)).bit_length()
