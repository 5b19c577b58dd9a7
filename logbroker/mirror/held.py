"""Partitions that wait because a record of theirs was refused, or cannot be read: pure."""

from typing import Final

HOLD_S: Final = 1.0
HOLD_MAX_S: Final = 30.0

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""


class HeldPartitions:
    """Which partitions are not read for a while, so that all others go on; times in seconds."""

    def __init__(self) -> None:
        self._until: dict[Place, tuple[float, float]] = {}

    def hold(self, place: Place, now_s: float, *, has_moved: bool) -> float:
        """Hold a partition back: for how long. Each time is longer, unless it has moved between."""
        _, last_s = self._until.get(place, (0.0, 0.0))
        hold_s = HOLD_S if has_moved or not last_s else min(2 * last_s, HOLD_MAX_S)
        self._until[place] = now_s + hold_s, hold_s
        return hold_s

    def is_held(self, place: Place, now_s: float) -> bool:
        """Whether it is too early to read a partition."""
        until_s, _ = self._until.get(place, (0.0, 0.0))
        return now_s < until_s
