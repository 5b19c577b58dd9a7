"""When a delivery that failed is tried again, and when it is given up."""

from dataclasses import dataclass
from typing import Final

from app.domain.delivery import Refused, Unreachable

GROWTH: Final = 4
"""Each wait is four times the one before: few attempts span a restart and an outage alike."""

SPREAD: Final = 0.2
"""Waits are spread by a fifth to either side, so that what failed together returns apart."""

PATIENCE_FACTOR: Final = 2
"""How far a Retry-After header may stretch a wait beyond `cap_s`."""

GONE: Final = 410

HOPELESS: Final = frozenset({400, 405, 411, 413, 414, 415, 422, 431, 501, 505})
"""Answers to the request as such: the same bytes would get the same answer again.

Every other status may heal while the job runs: a secret is rotated (401, 403), a route is
deployed (404), a moved server is told of (3xx), a limit passes (408, 409, 425, 429), a server
recovers (5xx).
"""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Send it again after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Send it no more."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently one event is sent to a receiver that does not take it.

    The waits are `base_s`, four times that, and so on up to `cap_s`, each spread by a fifth.
    A Retry-After header makes a wait longer, up to twice `cap_s`, and never shorter.

    Source: Standard Webhooks 1.0.0, "Retries" and "Response status codes".
    """

    attempts_max: int = 6
    base_s: float = 1.0
    cap_s: float = 60.0

    def next(
        self, outcome: Refused | Unreachable, attempt: int, jitter: float
    ) -> RetryAfter | GiveUp:
        """What to do after the `attempt`-th try (from 1) failed; `jitter` lies in [0, 1)."""
        if isinstance(outcome, Refused) and is_final(outcome):
            return GiveUp(outcome.reason)
        if attempt >= self.attempts_max:
            return GiveUp(outcome.reason)
        return RetryAfter(self._wait_s(outcome, attempt, jitter))

    def backoff_s(self, attempt: int) -> float:
        """The wait after the `attempt`-th failure in a row, before jitter."""
        # The exponent is bounded: a float overflows at 4**512.
        return float(min(self.cap_s, self.base_s * GROWTH ** min(attempt - 1, 32)))

    @property
    def patience_s(self) -> float:
        """The sum of all waits: how long a receiver may be down without losing an event."""
        return sum(self.backoff_s(attempt) for attempt in range(1, self.attempts_max))

    def _wait_s(self, outcome: Refused | Unreachable, attempt: int, jitter: float) -> float:
        wait_s = self.backoff_s(attempt) * (1 - SPREAD + 2 * SPREAD * jitter)
        if isinstance(outcome, Refused) and outcome.retry_after_s is not None:
            return max(wait_s, min(outcome.retry_after_s, PATIENCE_FACTOR * self.cap_s))
        return wait_s


def is_final(outcome: Refused) -> bool:
    """Whether the answer is one that no later attempt would better."""
    return outcome.status == GONE or outcome.status in HOPELESS
