"""The health of a webhook on the live path, and the events that wait for a retry there."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.domain.model import Replay, Webhook, WebhookStatus
from app.domain.options import ReplayReason

REASON_CHARS_MAX: Final = 500

CURRENT_MS: Final = 90_000
"""An older backlog is that of a process that has ended, and is not shown."""


@dataclass(frozen=True, slots=True)
class LiveBacklog:
    """The unsettled events of a webhook in one live process, while some wait for a retry.

    `waiting` events are not settled; `retrying` of them have failed at least once. `status` is the
    HTTP status of the last failed attempt, None without a response. `is_recovering` if an attempt
    has succeeded since.
    """

    waiting: int
    retrying: int
    is_recovering: bool
    status: int | None
    reason: str
    failed_ms: int
    next_attempt_ms: int


class WebhookHealth(StrEnum):
    """Whether the receiver of an ENABLED webhook accepts live deliveries."""

    HEALTHY = "healthy"
    FAILING = "failing"
    """The last attempts failed."""

    RECOVERING = "recovering"
    """It accepts events again, and earlier ones wait for their retry or a recovery replay."""


def health_of(
    webhook: Webhook, backlog: LiveBacklog | None, active: Replay | None
) -> WebhookHealth | None:
    """The health of a webhook whose active replay is `active`; None if it is not ENABLED."""
    if webhook.status is not WebhookStatus.ENABLED:
        return None
    if backlog is not None:
        return WebhookHealth.RECOVERING if backlog.is_recovering else WebhookHealth.FAILING
    if webhook.failing_since_ms is not None:
        return WebhookHealth.FAILING
    is_recovering = active is not None and active.reason is ReplayReason.RECOVERY
    return WebhookHealth.RECOVERING if is_recovering else WebhookHealth.HEALTHY
