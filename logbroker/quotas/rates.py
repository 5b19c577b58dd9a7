"""The arithmetic of quotas: a rate over a window of samples, and a token bucket.

Source: Apache Kafka, `Rate`, `QuotaUtils`, `TokenBucket`; KIP-13, KIP-599.
"""

from collections import deque
from typing import Final

SAMPLES: Final = 11
"""Kafka's default of `quota.window.num`."""

SAMPLE_S: Final = 1.0
"""Kafka's default of `quota.window.size.seconds`."""

WINDOW_S: Final = SAMPLES * SAMPLE_S
"""The age at which a sample no longer counts."""

FULL_SAMPLES_MIN: Final = SAMPLES - 1
"""A rate is that of at least so many samples, so a new client may begin with a burst."""


class Rate:
    """The sum of what was recorded in the last samples, by the time that they cover."""

    __slots__ = ("_samples", "_sum")

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()
        """Start and sum of each sample, the oldest first."""
        self._sum = 0.0

    def record(self, amount: float, now_s: float) -> None:
        """Add an amount to the current sample; a negative one takes back what was added."""
        self._drop_old(now_s)
        if not self._samples or now_s - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append([now_s, 0.0])
        self._samples[-1][1] += amount
        self._sum += amount

    def is_idle(self, now_s: float) -> bool:
        """Return whether nothing was recorded within the window."""
        self._drop_old(now_s)
        return self._sum <= 0

    def per_second(self, now_s: float) -> float:
        """Return the rate."""
        self._drop_old(now_s)
        return self._sum / self._elapsed_s(now_s)

    def throttle_s(self, limit: float, now_s: float) -> float:
        """Return how long nothing must be recorded until the rate is `limit` again; 0 if it is."""
        excess = self.per_second(now_s) - limit
        return excess / limit * self._elapsed_s(now_s) if excess > 0 else 0.0

    def _drop_old(self, now_s: float) -> None:
        samples = self._samples
        while samples and now_s - samples[0][0] >= WINDOW_S:
            self._sum -= samples.popleft()[1]
        if not samples:
            self._sum = 0.0  # without the rounding errors of many sums

    def _elapsed_s(self, now_s: float) -> float:
        elapsed_s = now_s - self._samples[0][0] if self._samples else 0.0
        missing = FULL_SAMPLES_MIN - int(elapsed_s / SAMPLE_S)
        return elapsed_s + max(0, missing) * SAMPLE_S


class TokenBucket:
    """Tokens that return at a rate, up to those of one window; a request may overdraw them."""

    __slots__ = ("_at_s", "_tokens")

    def __init__(self, limit: float, now_s: float) -> None:
        self._tokens = limit * WINDOW_S
        self._at_s = now_s

    def take(self, tokens: float, limit: float, now_s: float) -> None:
        """Remove tokens, also such that are not there yet."""
        self._refill(limit, now_s)
        self._tokens -= tokens

    def is_overdrawn(self, limit: float, now_s: float) -> bool:
        """Return whether more tokens were taken than there were."""
        self._refill(limit, now_s)
        return self._tokens < 0

    def is_full(self, limit: float, now_s: float) -> bool:
        """Return whether no token is missing."""
        self._refill(limit, now_s)
        return self._tokens >= limit * WINDOW_S

    def throttle_s(self, limit: float, now_s: float) -> float:
        """Return the time until the bucket is not overdrawn."""
        return -self._tokens / limit if self.is_overdrawn(limit, now_s) else 0.0

    def _refill(self, limit: float, now_s: float) -> None:
        self._tokens = min(limit * WINDOW_S, self._tokens + limit * (now_s - self._at_s))
        self._at_s = now_s
