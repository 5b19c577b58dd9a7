"""What deliveries come to, counted: for replays and for the live path alike."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected

# From a receiver on the same machine to one that takes all the time it has.
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20)

RESULTS: Final = (
    "delivered",
    "refused_3xx",
    "refused_4xx",
    "refused_5xx",
    "refused_other",
    "unreachable",
    "withheld",
)


class DeliveryMetrics:
    """Counts attempts by what came of them, how long they took and how large they were."""

    def __init__(self, registry: CollectorRegistry) -> None:
        attempts = Counter(
            "rewind_delivery_attempts",
            "Requests to webhooks, by result; withheld ones were held back before they left.",
            ["result"],
            registry=registry,
        )
        # One look-up less for each request; and a result that never came is shown as 0.
        self._attempts = {result: attempts.labels(result) for result in RESULTS}
        self._seconds = Histogram(
            "rewind_delivery_seconds",
            "Time of an attempt, from its turn to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._bytes = Counter(
            "rewind_delivery_bytes",
            "Bytes of the bodies that were sent, over all attempts.",
            registry=registry,
        )

    def count(self, outcome: AttemptOutcome, seconds: float, body_bytes: int) -> None:
        """Count one attempt."""
        self._attempts[_result(outcome)].inc()
        if not isinstance(outcome, NotSent):
            self._seconds.observe(seconds)
            self._bytes.inc(body_bytes)


def _result(outcome: AttemptOutcome) -> str:
    if isinstance(outcome, Delivered):
        return "delivered"
    if isinstance(outcome, Rejected):
        result = f"refused_{outcome.status // 100}xx"
        return result if result in RESULTS else "refused_other"
    return "withheld" if isinstance(outcome, NotSent) else "unreachable"
