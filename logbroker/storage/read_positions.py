"""Where readers stopped, so that the next read of a sequential reader need not search."""

from typing import Final

SLOTS: Final = 61
"""Readers remembered per log, about 500 bytes; a prime, so that equal strides spread."""


class ReadPositions:
    """A small memory of (offset, position) pairs that threads share without a lock.

    An offset's place in its segment never changes, so a pair is never wrong; one that is
    overwritten costs a search.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: list[tuple[int, int] | None] = [None] * SLOTS

    def remember(self, offset: int, position: int) -> None:
        """Batches that begin with `offset` begin at `position` of their segment's file."""
        self._slots[offset % SLOTS] = offset, position

    def find(self, offset: int) -> int | None:
        """The position of `offset`, when a reader stopped there lately."""
        pair = self._slots[offset % SLOTS]
        return pair[1] if pair is not None and pair[0] == offset else None
