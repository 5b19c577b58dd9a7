"""How fast a receiver takes events, as far as the last two seconds tell."""

from typing import Final

FAST_PER_S: Final = 100
"""A receiver that takes so many a second is waited for: it works a full queue off in no time."""


class Pace:
    """Counts what was taken, by the second of any one clock."""

    __slots__ = ("_before", "_now", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def took_one(self, now_s: float) -> None:
        """Count an event that was taken."""
        self._turn_to(int(now_s))
        self._now += 1

    def is_fast(self, now_s: float) -> bool:
        """Whether it took enough in this second, or in the one before."""
        self._turn_to(int(now_s))
        return max(self._now, self._before) >= FAST_PER_S

    def _turn_to(self, second: int) -> None:
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now = 0
            self._second = second
