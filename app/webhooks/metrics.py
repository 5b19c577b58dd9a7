"""Metrics of delivery attempts, for replays and the live path."""

from typing import Final

from prometheus_client import CollectorRegistry

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected
from logbroker.unlocked_metrics import CounterCollector, HistogramCollector

# From a receiver on the same machine up to the timeout.
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
    """Counts attempts by result, and measures their duration and size."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = CounterCollector(
            "rewind_delivery_attempts",
            "Requests to webhooks, by result; withheld requests were not sent.",
            registry,
            "result",
            RESULTS,
        )
        self._seconds = HistogramCollector(
            "rewind_delivery_seconds",
            "Duration of an attempt, including the wait for a connection.",
            registry,
            _SECONDS,
        )
        self._bytes = CounterCollector(
            "rewind_delivery_bytes", "Bytes of request bodies, over all attempts.", registry
        )

    def count(self, outcome: AttemptOutcome, seconds: float, body_bytes: int) -> None:
        """Count one attempt. For one thread."""
        self._attempts.add(value=_result(outcome))
        if not isinstance(outcome, NotSent):
            self._seconds.observe(seconds)
            self._bytes.add(body_bytes)


def _result(outcome: AttemptOutcome) -> str:
    if isinstance(outcome, Delivered):
        return "delivered"
    if isinstance(outcome, Rejected):
        result = f"refused_{outcome.status // 100}xx"
        return result if result in RESULTS else "refused_other"
    return "withheld" if isinstance(outcome, NotSent) else "unreachable"
