"""Notices of an account: what its webhooks and replays came to, for whom it is responsible.

Source: Standard Webhooks 1.0.0, "Payload structure" and "Deliverability and reliability".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from app.domain.endpoint_options import EndpointOptions
from app.domain.mail import mail_address
from app.domain.model import Replay, Validation, WebhookStatus, signing_secrets
from app.domain.notices import replay_data
from app.domain.windows import format_time


class NoticeType(StrEnum):
    """What a notice is about."""

    WEBHOOK_FAILING = "webhook.failing"
    WEBHOOK_RECOVERED = "webhook.recovered"
    WEBHOOK_DISABLED = "webhook.disabled"
    SECRET_EXPIRING = "secret.expiring"  # noqa: S105  # no secret
    REPLAY_COMPLETED = "replay.completed"
    REPLAY_FAILED = "replay.failed"
    REPLAY_CANCELLED = "replay.cancelled"


OUTAGE_MS: Final = 60_000
"""How long a receiver fails before that is reported: shorter outages are frequent."""

SECRET_NOTICE_MS: Final = 86_400_000
"""How long before its end an expiring secret is reported, if it was valid for twice that time."""

ENDPOINTS_PER_ACCOUNT_MAX: Final = 10

PENDING_PER_ENDPOINT_MAX: Final = 10_000
"""Further notices of an endpoint that accepts none are not stored."""

PAUSES_S: Final = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""The waits after failed attempts, which Standard Webhooks recommends: about 17 hours."""

KEPT_MS: Final = 3 * 86_400_000
"""How long a notice waits for a worker: later it is no news."""

FAILURE_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class NewNoticeEndpoint:
    """A notice endpoint to create; without `event_types` it gets all notices."""

    account_id: str
    url: str
    description: str
    secret: str = field(repr=False)
    event_types: tuple[NoticeType, ...] = ()


@dataclass(frozen=True, slots=True)
class NoticeEndpoint:
    """Where notices of an account are sent, signed with `secret`.

    The previous secret also signs until `previous_secret_until_ms`. Without `event_types` it gets
    all. `delivered_ms` is the time of the last notice that it
    accepted; `failed_ms` and `failure` are those of the last failed attempt.
    """

    id: str
    account_id: str
    url: str
    description: str
    event_types: tuple[NoticeType, ...]
    status: WebhookStatus
    status_reason: str | None
    secret: str = field(repr=False)
    previous_secret: str | None = field(repr=False)
    previous_secret_until_ms: int | None
    created_ms: int
    validated_ms: int | None
    delivered_ms: int | None
    failed_ms: int | None
    failure: str | None

    @property
    def mail_address(self) -> str | None:
        """The address that gets mails; None if its URL gets requests."""
        return mail_address(self.url)

    @property
    def validation(self) -> Validation:
        """How its receiver is verified."""
        return Validation.PING

    @property
    def options(self) -> EndpointOptions | None:
        """It has none."""
        return None

    def secrets_at(self, now_ms: int) -> tuple[str, ...]:
        """The secrets that sign at `now_ms`, the current one first."""
        return signing_secrets(
            self.secret, self.previous_secret, self.previous_secret_until_ms, now_ms
        )


@dataclass(frozen=True, slots=True)
class AccountNotice:
    """A notice to one endpoint; `id` is its `webhook-id`, and `attempt` counts from 1.

    `webhook_name` is the description of the webhook that it is about: empty without one, and for
    endpoints that are no e-mail addresses.
    """

    id: str
    endpoint: NoticeEndpoint
    body: bytes
    attempt: int
    webhook_name: str = ""


def pause_s(attempt: int) -> float | None:
    """The wait after failed attempt number `attempt`, from 1; None after the last attempt."""
    return PAUSES_S[attempt - 1] if attempt <= len(PAUSES_S) else None


def secret_notice_delay_ms(grace_ms: int) -> int:
    """How long after a rotation the end of the grace period is reported."""
    return grace_ms - min(SECRET_NOTICE_MS, grace_ms // 2)


def account_notice_body(notice_type: NoticeType, at_ms: int, data: Mapping[str, Any]) -> str:
    """The body of a notice of what happened at `at_ms`."""
    document = {"type": str(notice_type), "timestamp": format_time(at_ms), "data": data}
    return json.dumps(document, separators=(",", ":"))


def replay_notice_type(replay: Replay) -> NoticeType:
    """The type of the notice of a replay that has ended."""
    return NoticeType(f"replay.{replay.state.lower()}")


def replay_notice_data(replay: Replay) -> Mapping[str, Any]:
    """What the notice of a replay that has ended says."""
    return {"accountId": replay.account_id, **replay_data(replay), "reason": str(replay.reason)}
