"""What a replay shows while its receiver fails: attempts, the last error, and the next attempt."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from app.domain.delivery import Rejected, Unreachable

REASON_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class ReceiverFailure:
    """A series of failed attempts of a replay that has not ended. Times are milliseconds.

    `failed_attempts` counts since `since_ms`. `status` is the HTTP status of the last one, None
    without a response. `waiting_events` are read and neither delivered nor given up.
    """

    failed_attempts: int
    since_ms: int
    last_attempt_ms: int
    status: int | None
    reason: str
    next_attempt_ms: int
    waiting_events: int


class ReceiverFailureTracker:
    """Tracks the requests of one replay that wait for another attempt. For one event loop.

    A series of failures begins with the first such request and ends when none is left.
    """

    def __init__(self) -> None:
        self._next_ms: dict[Hashable, int] = {}
        self._failed_attempts = 0
        self._since_ms = self._last_ms = 0
        self._last: Rejected | Unreachable | None = None

    @property
    def has_waiting_requests(self) -> bool:
        """Whether a request waits for another attempt."""
        return bool(self._next_ms)

    def record_failure(
        self, request: Hashable, outcome: Rejected | Unreachable, now_ms: int, next_ms: int
    ) -> None:
        """Record a failed attempt of a request, which is attempted again at `next_ms`."""
        if not self._next_ms:
            self._failed_attempts, self._since_ms = 0, now_ms
        self._failed_attempts += 1
        self._last_ms, self._last = now_ms, outcome
        self._next_ms[request] = next_ms

    def record_end(self, request: Hashable) -> None:
        """Record that a request is delivered, given up or dropped."""
        self._next_ms.pop(request, None)

    def failure(self, probe_ms: int | None, waiting_events: int) -> ReceiverFailure | None:
        """The current series; None without one. Nothing is attempted before `probe_ms`."""
        if not self._next_ms or self._last is None:
            return None
        return ReceiverFailure(
            failed_attempts=self._failed_attempts,
            since_ms=self._since_ms,
            last_attempt_ms=self._last_ms,
            status=self._last.status if isinstance(self._last, Rejected) else None,
            reason=self._last.reason[:REASON_CHARS_MAX],
            next_attempt_ms=min(self._next_ms.values()) if probe_ms is None else probe_ms,
            waiting_events=waiting_events,
        )
