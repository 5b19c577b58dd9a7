"""Since when the source has had records that are not copied: pure."""

from typing import Final

EXACTNESS: Final = 32
"""A record's age is known to this part of the oldest one's age, or to the time between looks."""


class UncopiedSince:
    """Follows the end of one partition of the source, and the position of its copy.

    A record is as old as the first look at an end behind it, whatever its own time is; that is
    told of looks nearby together, whose number so grows with the logarithm of the time: some
    hundreds for a month. No age is ever too low.
    """

    __slots__ = ("_looks", "since_s")

    def __init__(self) -> None:
        self.since_s: float | None = None
        """When the oldest record that is not copied was first there; None if there is none."""
        self._looks: list[tuple[float, int]] = []
        """When, and the end that was seen then, or soon after; both grow."""

    def look(self, now_s: float, position: int, end: int) -> None:
        """Everything below `position` is copied; the source ends at `end`."""
        looks = self._looks
        if looks and end < looks[-1][1]:
            # It is another partition now, or has lost what it had.
            looks.clear()
        while looks and looks[0][1] <= position:
            del looks[0]
        if end > position:
            self._see(now_s, end)
        self.since_s = looks[0][0] if looks else None

    def _see(self, now_s: float, end: int) -> None:
        looks = self._looks
        if looks and now_s - looks[-1][0] < (now_s - looks[0][0]) / EXACTNESS:
            looks[-1] = looks[-1][0], end
        elif not looks or end > looks[-1][1]:
            looks.append((now_s, end))
