"""Rate limits of replays and live deliveries, and the measured throughput of live receivers."""

from typing import Final

SLACK_S: Final = 0.05
"""Unused time that may be made up for: sender tasks wake up this late on a busy machine."""

FAST_PER_S: Final = 100
"""Deliveries per second from which a receiver is expected to drain a full queue soon."""


class RateLimiter:
    """Spaces events evenly over time. Times are seconds of any one clock.

    Any span of time admits as many events as the rate allows, plus those of `SLACK_S`. Every
    attempt counts, because the limit protects the receiver from requests.

    Source: the generic cell rate algorithm, ITU-T I.371, as a schedule of start times.
    """

    def __init__(self, events_per_second: int, now_s: float) -> None:
        self._per_event_s = 1 / events_per_second
        self._next_s = now_s

    def wait_s(self, now_s: float) -> float:
        """The seconds until the next slot starts."""
        return max(0.0, self._next_s - now_s)

    def reserve(self, events: int, now_s: float) -> float:
        """Reserve the next slot for `events` sent together: the seconds until it starts."""
        start_s = max(self._next_s, now_s - SLACK_S)
        self._next_s = start_s + events * self._per_event_s
        return max(0.0, start_s - now_s)


class ThroughputEstimate:
    """Counts deliveries in the current second and in the one before, of any one clock."""

    __slots__ = ("_current", "_previous", "_second")

    def __init__(self) -> None:
        self._second = 0
        self._current = 0
        self._previous = 0

    def record_delivery(self, now_s: float) -> None:
        """Count one delivery."""
        self._advance_to(int(now_s))
        self._current += 1

    def is_fast(self, now_s: float) -> bool:
        """Whether either second had at least `FAST_PER_S` deliveries."""
        self._advance_to(int(now_s))
        return max(self._current, self._previous) >= FAST_PER_S

    def _advance_to(self, second: int) -> None:
        if second != self._second:
            self._previous = self._current if second == self._second + 1 else 0
            self._current = 0
            self._second = second
