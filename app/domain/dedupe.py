"""Digests of events, and bounded sets of digests that detect duplicates."""

from array import array
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


class SeenHashes:
    """The last different digests, between `entries_max / 2` and `entries_max` of them.

    Two hash tables of half the size hold them. When the younger table is full, the older one is
    cleared and takes its place. An entry takes 12 to 24 bytes; in a `set` it takes over 100. All
    memory is allocated at the start, so that a process that runs for long does not grow.
    """

    def __init__(self, entries_max: int) -> None:
        self._generation_max = max(1, (entries_max + 1) // 2)
        slots = _slots(self._generation_max)
        self._mask = slots - 1
        self._young, self._old = (array("q", [_FREE]) * slots for _ in range(2))
        self._count = 0

    def __contains__(self, digest: int) -> bool:
        digest = digest or 1
        return self._has(self._young, digest) or self._has(self._old, digest)

    def add(self, digest: int) -> bool:
        """Insert a digest; True if it is new."""
        digest = digest or 1  # 0 is `_FREE`
        young, mask = self._young, self._mask
        slot = digest & mask
        while (found := young[slot]) != _FREE:
            if found == digest:
                return False
            slot = (slot + 1) & mask
        if self._has(self._old, digest):
            return False
        young[slot] = digest
        self._count += 1
        if self._count >= self._generation_max:
            # Reused, not reallocated: memory freed in pieces this large is not always reusable.
            self._old, self._young, self._count = young, _cleared(self._old), 0
        return True

    def _has(self, table: "array[int]", digest: int) -> bool:
        mask = self._mask
        slot = digest & mask
        while (found := table[slot]) != _FREE:
            if found == digest:
                return True
            slot = (slot + 1) & mask
        return False


def _cleared(table: "array[int]") -> "array[int]":
    slots = memoryview(table)
    for start in range(0, len(slots), len(_FREE_SLOTS)):
        part = slots[start : start + len(_FREE_SLOTS)]
        part[:] = _FREE_SLOTS[: len(part)]
    return table


def _slots(entries: int) -> int:
    """The smallest power of two that holds `entries` and leaves a third empty."""
    return 1 << max(1, int(entries * _SLOTS_PER_ENTRY)).bit_length()
