"""How far one partition is copied: pure."""

from collections import deque


class PartitionProgress:
    """Follows the records of one partition of the source until the destination has each.

    `position` is what may be committed: everything below it is at the destination, or was passed
    over, or is no record. It is None until the first offset is known.
    """

    __slots__ = ("_early", "_under_way", "committed", "next_offset")

    def __init__(self, start: int | None) -> None:
        """`start` is where reading begins; None where that is the earliest offset there is."""
        self.next_offset = start
        """Behind the last record that was sent or passed over."""
        self.committed = start
        """The position that was stored last."""
        self._under_way: deque[int] = deque()
        self._early: set[int] = set()

    def send(self, offset: int) -> None:
        """The record at `offset` is on its way."""
        self._under_way.append(offset)
        self.next_offset = offset + 1

    def skip_to(self, offset: int) -> None:
        """Nothing below `offset` is to be sent any more."""
        self.next_offset = offset

    def settle(self, offset: int) -> None:
        """The destination has the record at `offset`.

        They settle in order, as the client promises; should one come early, it waits for those
        before it, so that no position is ever beyond a record that is still on its way.
        """
        under_way = self._under_way
        if under_way[0] != offset:
            self._early.add(offset)
            return
        under_way.popleft()
        while self._early and under_way and under_way[0] in self._early:
            self._early.remove(under_way.popleft())

    @property
    def is_level(self) -> bool:
        """Whether nothing is on its way."""
        return not self._under_way

    @property
    def position(self) -> int | None:
        """The first offset that the destination may not have."""
        return self._under_way[0] if self._under_way else self.next_offset
