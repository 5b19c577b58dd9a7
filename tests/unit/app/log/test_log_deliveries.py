"""Deliveries as the log has them."""

from dataclasses import replace

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.log.deliveries import DeliverySummary

FAILED = DeliverySummary(
    DeliveryPlace("here", 3, 7),
    webhook_id="wh_1",
    event_id="evt_7",
    event_type="order.paid",
    time_ms=1_000,
    status=DeliveryStatus.FAILED,
    reason="HTTP 503",
)


def test_a_successful_resend_settles_no_pending_delivery() -> None:
    assert FAILED.after_resend().status is DeliveryStatus.SUCCEEDED
    pending = replace(FAILED, status=DeliveryStatus.PENDING, reason=None)
    assert pending.after_resend() == pending
