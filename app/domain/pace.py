"""How fast a replay may send, so that it stays within so many events a second."""

from typing import Final

SLACK_S: Final = 0.05
"""How much time that was not used may be made up for: a sender wakes up late by so much on a busy
machine, and must not fall behind for it."""


class Pace:
    """Spreads events evenly over time; seconds are of any one clock.

    Over any stretch of time, as many events start as it has room for, and those of `SLACK_S`
    more. Every attempt counts: what the receiver is spared of are requests.

    Source: the generic cell rate algorithm, ITU-T I.371, as a schedule of what comes next.
    """

    def __init__(self, events_per_second: int, now_s: float) -> None:
        self._per_event_s = 1 / events_per_second
        self._next_s = now_s

    def wait_s(self, events: int, now_s: float) -> float:
        """Take the next place for so many events at once: how long to wait until it is there."""
        start_s = max(self._next_s, now_s - SLACK_S)
        self._next_s = start_s + events * self._per_event_s
        return max(0.0, start_s - now_s)
