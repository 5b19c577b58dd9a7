"""Response bodies of the routes of webhooks."""

import math
from collections.abc import Sequence
from typing import Final, Literal, Self

from pydantic import Field, JsonValue

from app.api.models.documents import Document, Moment, former_name_of
from app.domain.endpoint_options import (
    NO_OPTIONS,
    Authentication,
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    Ordering,
)
from app.domain.live_backlog import LiveBacklog, WebhookHealth, health_of
from app.domain.missed import MissedHour
from app.domain.model import Replay, Validation, Webhook, WebhookStatus
from app.domain.scheduled_retries import WaitingRetries
from app.domain.tallies import TOOK_MS_BOUNDS, DeliveryTally
from app.http.endpoint_options import ORDERING
from app.http.request_bodies import AUTO_RECOVERY, SECRET_EXAMPLE, example

WEBHOOK_EXAMPLE: Final[dict[str, JsonValue]] = {
    "id": "wh_2yPqkM5dTn4v",
    "accountId": "acc_default",
    "url": "https://example.com/hooks",
    "description": "billing",
    "eventTypes": ["follow.*"],
    "validation": "ping",
    "status": "ENABLED",
    "statusReason": None,
    "validatedAt": "2026-11-21T08:00:00.250Z",
    "failingSince": None,
    "health": "healthy",
    "autoRecovery": True,
    "liveRetries": None,
    "scheduledRetries": None,
    "previousSecretExpiresAt": None,
    "headerNames": ["x-tenant"],
    "authentication": {
        "type": "oauth2",
        "username": None,
        "tokenUrl": "https://login.example.com/token",
        "clientId": "rewind",
        "scope": "hooks",
        "audience": None,
        "clientAuthentication": "basic",
    },
    "timeoutSeconds": 5,
    "maxEventsPerSecond": 50,
    "maxInFlight": 2,
    "ordering": "none",
    "createdAt": "2026-11-21T08:00:00.000Z",
}


class AuthenticationDocument(Document):
    """How requests authenticate at the receiver, without secrets; null where it does not apply."""

    type: Literal["basic", "bearer", "oauth2"]
    username: str | None = None
    token_url: str | None = None
    client_id: str | None = None
    scope: str | None = None
    audience: str | None = None
    client_authentication: Literal["basic", "body"] | None = None

    @classmethod
    def of(cls, authentication: Authentication) -> Self:
        """The document of an authentication."""
        match authentication:
            case BasicAuthentication(username):
                return cls(type="basic", username=username)
            case BearerAuthentication():
                return cls(type="bearer")
            case ClientCredentials():
                return cls(
                    type="oauth2",
                    token_url=authentication.token_url,
                    client_id=authentication.client_id,
                    scope=authentication.scope,
                    audience=authentication.audience,
                    client_authentication="body" if authentication.in_body else "basic",
                )


class LiveRetriesDocument(Document):
    """Events that live delivery retries."""

    waiting_events: int = Field(
        validation_alias="waiting", description="Events that are neither delivered nor given up."
    )
    retrying_events: int = Field(
        validation_alias="retrying", description="Those of them that have failed at least once."
    )
    last_status: int | None = Field(
        validation_alias="status",
        description="The HTTP status of the last failed attempt; null without a response.",
    )
    last_error: str = Field(validation_alias="reason")
    last_failed_at: Moment = Field(validation_alias="failed_ms")
    next_attempt_at: Moment = Field(
        validation_alias="next_attempt_ms", description="When the next retry is due."
    )


class ScheduledRetriesDocument(Document):
    """Events whose live attempts have failed, and that are retried later."""

    waiting_events: int = Field(
        validation_alias="events", description="Events that wait for a scheduled retry."
    )
    next_attempt_at: Moment | None = Field(
        validation_alias="next_ms",
        description="When the first one is due; null while all of them are being sent.",
    )


class WebhookDocument(Document):
    """A registered webhook, without its secret."""

    model_config = example(WEBHOOK_EXAMPLE)

    id: str
    account_id: str
    url: str
    description: str
    event_types: tuple[str, ...] | None = Field(
        description="The globs of the rule `default`; null without this rule."
    )
    validation: Validation
    status: WebhookStatus = Field(description="Events are only sent to an ENABLED webhook.")
    status_reason: str | None = Field(description="Why the webhook is not ENABLED.")
    validated_at: Moment | None = Field(
        description="The last time that the receiver passed the verification."
    )
    failing_since: Moment | None = Field(description="The start of the current series of failures.")
    health: WebhookHealth | None = Field(
        description="Whether the receiver accepts live deliveries; `recovering`: again, and some "
        "events still wait for their retry or a recovery replay. null unless ENABLED."
    )
    auto_recovery: bool = Field(description=AUTO_RECOVERY)
    live_retries: LiveRetriesDocument | None = Field(
        description="The events that live delivery retries, up to a second ago; null without any."
    )
    scheduled_retries: ScheduledRetriesDocument | None = Field(
        description="The events that wait for a scheduled retry, next to those in `liveRetries`; "
        "null without any."
    )
    previous_secret_expires_at: Moment | None = Field(
        description="Until then the previous secret also signs."
    )
    header_names: list[str] = Field(
        description="The headers that requests have besides Rewind's own; values are not shown."
    )
    authentication: AuthenticationDocument | None
    timeout_seconds: int | None = Field(description="Of one attempt; null: the operator's setting.")
    max_events_per_second: int | None = Field(
        description="Of live delivery; null: no limit.",
    )
    max_in_flight: int | None = Field(
        description="Concurrent requests of live delivery; null: the operator's setting."
    )
    retry_schedule: Sequence[int] | None = Field(
        description="Pauses in seconds before each retry; null: the operator's schedule."
    )
    ordering: Ordering = Field(description=ORDERING)
    created_at: Moment

    @classmethod
    def of(
        cls,
        webhook: Webhook,
        now_ms: int,
        backlog: LiveBacklog | None = None,
        *,
        active: Replay | None = None,
        event_types: tuple[str, ...] | None = None,
        retries: WaitingRetries | None = None,
    ) -> Self:
        """The document of a webhook as of `now_ms`."""
        signs_twice = len(webhook.secrets_at(now_ms)) > 1
        options = webhook.options or NO_OPTIONS
        authentication = options.authentication
        return cls(
            id=webhook.id,
            account_id=webhook.account_id,
            url=webhook.url,
            description=webhook.description,
            event_types=event_types,
            validation=webhook.validation,
            status=webhook.status,
            status_reason=webhook.status_reason,
            validated_at=webhook.validated_ms,
            failing_since=webhook.failing_since_ms,
            health=health_of(webhook, backlog, active),
            auto_recovery=webhook.auto_recovery,
            live_retries=None if backlog is None else LiveRetriesDocument.model_validate(backlog),
            scheduled_retries=None
            if retries is None
            else ScheduledRetriesDocument.model_validate(retries),
            previous_secret_expires_at=webhook.previous_secret_until_ms if signs_twice else None,
            header_names=sorted(options.headers),
            authentication=None
            if authentication is None
            else AuthenticationDocument.of(authentication),
            timeout_seconds=options.timeout_s,
            max_events_per_second=options.max_events_per_second,
            max_in_flight=options.max_in_flight,
            retry_schedule=options.retry_schedule_s,
            ordering=options.ordering,
            created_at=webhook.created_ms,
        )


class WebhookWithSecret(WebhookDocument):
    """A webhook with its new secret, which no other response has."""

    model_config = example(WEBHOOK_EXAMPLE | {"secret": SECRET_EXAMPLE})

    secret: str = Field(repr=False, description="Signs the requests (Standard Webhooks).")


class RegisteredWebhook(WebhookWithSecret):
    """A new webhook with its secret."""

    model_config = example(WEBHOOK_EXAMPLE | {"secret": SECRET_EXAMPLE, "coveredByGrant": True})

    covered_by_grant: bool | None = Field(
        description="Whether a grant of the account covers some event of `eventTypes`; null "
        "without `eventTypes`. If false, the rule `default` matches only events that were "
        "published for the account."
    )


class TrialDocument(Document):
    """The result of a test event."""

    model_config = example(
        {
            "delivered": False,
            "status": 401,
            "reason": "HTTP 401 Unauthorized",
            "durationMs": 38,
            "response": "no such signature",
        }
    )

    delivered: bool = Field(description="Whether the receiver answered with a 2xx.")
    status: int | None = Field(description="The status of the response; null without one.")
    reason: str | None = Field(description="Why the event was not delivered.")
    duration_ms: int
    response: str | None = Field(
        description="The first 1,024 bytes of the response body, as text. Null without a "
        "response, and for developers whose receiver is not verified."
    )


class AnsweredWithin(Document):
    """A bucket of attempts by latency: longer than the previous bound, up to this one."""

    within_ms: int | None = Field(description="Null for the last bucket.")
    count: int


class StatisticsDocument(Document):
    """Statistics of the live deliveries to a webhook in the last hour."""

    model_config = example(
        {
            "from": "2026-11-21T08:00:00.000Z",
            "to": "2026-11-21T09:03:12.250Z",
            "delivered": 940,
            "failed": 12,
            "skipped": 48,
            "leftOver": 48,
            "disabled": 0,
            "successRate": 0.94,
            "p50Ms": 100,
            "p95Ms": 500,
            "answers": [
                {"withinMs": 50, "count": 410},
                {"withinMs": 100, "count": 390},
                {"withinMs": 250, "count": 80},
                {"withinMs": 500, "count": 50},
                {"withinMs": 1000, "count": 10},
                {"withinMs": 2500, "count": 0},
                {"withinMs": 5000, "count": 0},
                {"withinMs": None, "count": 12},
            ],
        }
    )

    from_: Moment = Field(serialization_alias="from", description="A multiple of five minutes.")
    to: Moment
    delivered: int = Field(description="Events with an outcome in this time, by outcome.")
    failed: int
    skipped: int
    left_over: int = former_name_of("skipped")
    disabled: int
    success_rate: float | None = Field(
        description="The share of delivered events, without `disabled`, 0 to 1."
    )
    p50_ms: int | None = Field(
        description="Upper bound of the median latency: a `withinMs` of `answers`; null above the "
        "highest, or without attempts.",
    )
    p95_ms: int | None = Field(description="Upper bound of the 95th percentile.")
    answers: list[AnsweredWithin] = Field(description="The last attempt of each event, by latency.")

    @classmethod
    def of(cls, tally: DeliveryTally, to_ms: int) -> Self:
        """The document of a tally that ends at `to_ms`."""
        counts = zip((*TOOK_MS_BOUNDS, None), tally.took, strict=True)
        return cls(
            from_=tally.start_ms,
            to=to_ms,
            delivered=tally.delivered,
            failed=tally.failed,
            skipped=tally.skipped,
            left_over=tally.skipped,
            disabled=tally.disabled,
            success_rate=tally.success_rate,
            p50_ms=_bound(tally.percentile_ms(0.5)),
            p95_ms=_bound(tally.percentile_ms(0.95)),
            answers=[AnsweredWithin(within_ms=bound, count=count) for bound, count in counts],
        )


def _bound(at_most_ms: float | None) -> int | None:
    return None if at_most_ms is None or math.isinf(at_most_ms) else int(at_most_ms)


class MissedHourDocument(Document):
    """An hour of event time with missed events."""

    from_: Moment = Field(serialization_alias="from")
    to: Moment = Field(description="The end of the hour; now, for the current hour.")
    missed: int = Field(description="Events that were not delivered live.")
    failed: int
    skipped: int
    left_over: int = former_name_of("skipped")
    disabled: int
    is_replayed: bool = Field(
        description="Whether COMPLETED replays without failures cover all missed events."
    )

    @classmethod
    def of(cls, hour: MissedHour, now_ms: int) -> Self:
        """The document of an hour as of `now_ms`."""
        return cls(
            from_=hour.start_ms,
            to=min(hour.end_ms, now_ms),
            missed=hour.missed,
            failed=hour.failed,
            skipped=hour.skipped,
            left_over=hour.skipped,
            disabled=hour.disabled,
            is_replayed=hour.is_replayed,
        )


class MissedDocument(Document):
    """The missed events of a webhook, as far back as they can be replayed."""

    model_config = example(
        {
            "missed": 60,
            "unreplayed": 60,
            "hours": [
                {
                    "from": "2026-11-21T07:00:00.000Z",
                    "to": "2026-11-21T08:00:00.000Z",
                    "missed": 60,
                    "failed": 12,
                    "skipped": 48,
                    "leftOver": 48,
                    "disabled": 0,
                    "isReplayed": False,
                }
            ],
        }
    )

    missed: int = Field(description="In all hours.")
    unreplayed: int = Field(description="In hours that are not replayed.")
    hours: list[MissedHourDocument] = Field(description="The latest first.")

    @classmethod
    def of(cls, hours: Sequence[MissedHour], now_ms: int) -> Self:
        """The document of hours, the earliest first, as of `now_ms`."""
        return cls(
            missed=sum(hour.missed for hour in hours),
            unreplayed=sum(hour.missed for hour in hours if not hour.is_replayed),
            hours=[MissedHourDocument.of(hour, now_ms) for hour in reversed(hours)],
        )
