"""Answers in the order of their requests, however late each becomes known."""

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logbroker.storage.span import FileSpan


class Slot:
    """The place of one answer; whoever opened it fills it once, at once or later."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes | FileSpan] | None = None

    def fill(self, parts: "list[bytes | FileSpan]") -> None:
        """Give the answer, size prefix included."""
        assert self.parts is None, "a slot is filled once"
        self.parts = parts


class AnswerQueue:
    """The slots of one connection that have not left yet.

    A request that gets no answer (Produce with acks=0) opens no slot, or everything behind it
    would wait for ever.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is owed."""
        return not self._slots

    def open(self) -> Slot:
        """A slot behind all that are open."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def take_ready(self) -> "list[list[bytes | FileSpan]]":
        """The answers before the first that is not filled yet, oldest first."""
        slots = self._slots
        ready = []
        while slots and (parts := slots[0].parts) is not None:
            ready.append(parts)
            slots.popleft()
        return ready
