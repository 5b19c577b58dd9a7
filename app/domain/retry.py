"""Retry schedules: when a failed delivery is attempted again, and when it is given up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.delivery import Rejected, Unreachable

GROWTH: Final = 4
"""Factor between two waits: six attempts span both a restart and an outage."""

SPREAD: Final = 0.2
"""Jitter as a fraction of the wait, so that deliveries that failed together retry apart."""

RETRY_AFTER_FACTOR: Final = 2
"""How many times `cap_s` a Retry-After header may extend a wait to."""

RETRY_AFTER_S_MAX: Final = 600.0
"""The longest Retry-After that live deliveries honour."""

GONE: Final = 410

PERMANENT: Final = frozenset({400, 405, 411, 413, 414, 415, 422, 431, 501, 505})
"""Statuses that reject the request itself: the same bytes would get the same answer.

Every other status may recover while the job runs: a secret is rotated (401, 403), a route is
deployed (404), a server moves (3xx), a limit passes (408, 409, 425, 429), a server recovers (5xx).
"""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Retry after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not retry."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter, for replays.

    The waits are `base_s`, four times that, and so on up to `cap_s`, each spread by 20 %.
    A Retry-After header can lengthen a wait, up to twice `cap_s`, and never shortens it. The
    webhook's own `schedule_s` replaces the waits, and so the number of attempts.

    Source: Standard Webhooks 1.0.0, "Retries" and "Response status codes".
    """

    attempts_max: int = 6
    base_s: float = 1.0
    cap_s: float = 60.0
    schedule_s: tuple[float, ...] = ()

    def after_failure(
        self, outcome: Rejected | Unreachable, attempt: int, jitter: float
    ) -> RetryAfter | GiveUp:
        """The step after the failed attempt number `attempt` (from 1); `jitter` is in [0, 1)."""
        attempts_max = len(self.schedule_s) + 1 if self.schedule_s else self.attempts_max
        if is_permanent(outcome) or attempt >= attempts_max:
            return GiveUp(outcome.reason)
        wait_s = self.backoff_s(attempt) * (1 - SPREAD + 2 * SPREAD * jitter)
        return RetryAfter(max(wait_s, retry_after_s(outcome, RETRY_AFTER_FACTOR * self.cap_s)))

    def backoff_s(self, attempt: int) -> float:
        """The wait after the `attempt`-th consecutive failure, before jitter."""
        if self.schedule_s:
            return self.schedule_s[min(attempt, len(self.schedule_s)) - 1]
        # The exponent is bounded: a float overflows at 4**512.
        return float(min(self.cap_s, self.base_s * GROWTH ** min(attempt - 1, 32)))


@dataclass(frozen=True, slots=True)
class FixedDelays:
    """A delay before each attempt, without jitter, for live deliveries.

    A Retry-After header can lengthen a delay, up to `RETRY_AFTER_S_MAX`.
    """

    delays_s: tuple[float, ...]

    def after_failure(self, outcome: Rejected | Unreachable, attempt: int) -> RetryAfter | GiveUp:
        """The step after the failed attempt number `attempt` (from 1)."""
        if is_permanent(outcome) or attempt >= len(self.delays_s):
            return GiveUp(outcome.reason)
        return RetryAfter(max(self.delays_s[attempt], retry_after_s(outcome, RETRY_AFTER_S_MAX)))


def longest_retries_s(pauses_s: Sequence[float]) -> float:
    """How long live retries with these pauses can take: Retry-After may lengthen each pause."""
    return sum(max(each, RETRY_AFTER_S_MAX) for each in pauses_s)


def exceeds_schedule(pauses_s: Sequence[float], longest_s: Sequence[float]) -> bool:
    """Whether live retries with these pauses can be more, or take longer, than with `longest_s`."""
    return len(pauses_s) > len(longest_s) or (
        longest_retries_s(pauses_s) > longest_retries_s(longest_s)
    )


def retry_after_s(outcome: Rejected | Unreachable, longest_s: float) -> float:
    """The wait that a Retry-After header requested, at most `longest_s`; 0 without one."""
    requested_s = outcome.retry_after_s if isinstance(outcome, Rejected) else None
    return min(requested_s or 0.0, longest_s)


def is_permanent(outcome: Rejected | Unreachable) -> bool:
    """Whether a retry of the same request would get the same answer."""
    return isinstance(outcome, Rejected) and (outcome.status == GONE or outcome.status in PERMANENT)
