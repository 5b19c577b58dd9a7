"""Metrics of delivery attempts."""

import pytest
from prometheus_client import CollectorRegistry

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected, Unreachable
from app.webhooks.metrics import DeliveryMetrics


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Delivered(204), "delivered"),
        (Rejected(302, None, ""), "refused_3xx"),
        (Rejected(429, None, ""), "refused_4xx"),
        (Rejected(503, None, ""), "refused_5xx"),
        (Rejected(999, None, ""), "refused_other"),
        (Unreachable("reset"), "unreachable"),
    ],
)
def test_an_attempt_is_counted_by_its_result(outcome: AttemptOutcome, result: str) -> None:
    registry = CollectorRegistry()
    DeliveryMetrics(registry).count(outcome, 0.02, 300)
    assert registry.get_sample_value("rewind_delivery_attempts_total", {"result": result}) == 1
    assert registry.get_sample_value("rewind_delivery_seconds_bucket", {"le": "0.025"}) == 1
    assert registry.get_sample_value("rewind_delivery_bytes_total") == 300


def test_a_withheld_request_has_no_duration_and_no_bytes() -> None:
    registry = CollectorRegistry()
    DeliveryMetrics(registry).count(NotSent(), 5.0, 300)
    attempts = {"result": "withheld"}
    assert registry.get_sample_value("rewind_delivery_attempts_total", attempts) == 1
    assert registry.get_sample_value("rewind_delivery_seconds_count") == 0
    assert registry.get_sample_value("rewind_delivery_bytes_total") == 0
