"""The memory that all receive buffers of a process may take together."""


class MemoryBudget:
    """Counts bytes that are taken and given back, up to a maximum."""

    __slots__ = ("bytes_max", "bytes_taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0

    def take(self, count: int) -> bool:
        """Take `count` bytes; returns False, and takes nothing, if fewer are left."""
        if count > self.bytes_max - self.bytes_taken:
            return False
        self.bytes_taken += count
        return True

    def give_back(self, count: int) -> None:
        """Return `count` bytes that were taken."""
        self.bytes_taken -= count
