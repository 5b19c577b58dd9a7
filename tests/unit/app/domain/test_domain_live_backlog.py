from dataclasses import replace

import pytest

from app.domain.live_backlog import LiveBacklog, WebhookHealth, health_of
from app.domain.model import Validation, Webhook, WebhookStatus
from app.domain.options import ReplayReason
from tests.unit.app.domain.test_domain_progress import ONGOING

WEBHOOK = Webhook(
    id="wh_1",
    account_id="acc_1",
    url="https://example.com/",
    description="",
    validation=Validation.PING,
    status=WebhookStatus.ENABLED,
    status_reason=None,
    secret="whsec_",
    previous_secret=None,
    previous_secret_until_ms=None,
    validated_ms=None,
    failing_since_ms=None,
    created_ms=0,
)
BACKLOG = LiveBacklog(9, 4, False, 503, "HTTP 503", 1, 2)
RECOVERING = replace(BACKLOG, is_recovering=True)


@pytest.mark.parametrize(
    ("failing_since_ms", "backlog", "health"),
    [
        (None, None, WebhookHealth.HEALTHY),
        (7, None, WebhookHealth.FAILING),
        (None, BACKLOG, WebhookHealth.FAILING),
        (7, RECOVERING, WebhookHealth.RECOVERING),
    ],
)
def test_a_webhook_with_events_in_retry_is_not_healthy(
    failing_since_ms: int | None, backlog: LiveBacklog | None, health: WebhookHealth
) -> None:
    webhook = replace(WEBHOOK, failing_since_ms=failing_since_ms)
    assert health_of(webhook, backlog, None) is health
    assert health_of(replace(webhook, status=WebhookStatus.DISABLED), backlog, None) is None


@pytest.mark.parametrize(
    ("failing_since_ms", "reason", "health"),
    [
        (None, ReplayReason.RECOVERY, WebhookHealth.RECOVERING),
        (None, ReplayReason.REQUEST, WebhookHealth.HEALTHY),
        (7, ReplayReason.RECOVERY, WebhookHealth.FAILING),
    ],
)
def test_a_webhook_recovers_while_a_recovery_replay_is_active(
    failing_since_ms: int | None, reason: ReplayReason, health: WebhookHealth
) -> None:
    webhook = replace(WEBHOOK, failing_since_ms=failing_since_ms)
    assert health_of(webhook, None, replace(ONGOING, reason=reason)) is health
