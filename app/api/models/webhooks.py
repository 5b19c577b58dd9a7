"""Bodies of the routes of webhooks."""

from typing import Annotated, Final, Self

from pydantic import Field, JsonValue, field_validator

from app.api.models.documents import Document, EventTypeGlob, Moment, RequestBody, example
from app.domain.model import Validation, Webhook, WebhookStatus
from app.domain.options import EVENT_TYPES_MAX

DESCRIPTION_CHARACTERS_MAX: Final = 500

GRACE_S: Final = 86_400
GRACE_S_MAX: Final = 604_800

SECRET_EXAMPLE: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwNEED2GHJdWk="  # noqa: S105

Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]
AccountId = Annotated[str, Field(pattern=r"^[!-~]{1,40}$")]

# What it must look like is checked where a refusal does not show what was refused.
Secret = Annotated[
    str,
    Field(
        json_schema_extra={"format": "password", "examples": [SECRET_EXAMPLE]},
        description="`whsec_` and 24 to 64 bytes in base64.",
    ),
]


class WebhookRequest(RequestBody):
    """A webhook to register."""

    model_config = example(
        {"url": "https://example.com/hooks", "description": "billing", "eventTypes": ["follow.*"]}
    )

    url: str = Field(description="Where events are sent: https, and a public address.")
    description: Description = ""
    validation: Validation = Field(
        Validation.PING,
        description="How the receiver proves to be yours: it takes a signed `webhook.ping`, or it "
        "answers Twitter's challenge-response check (`crc`).",
    )
    secret: Secret | None = Field(None, repr=False, description="Left out, one is made.")
    event_types: list[EventTypeGlob] | None = Field(
        None,
        min_length=1,
        max_length=EVENT_TYPES_MAX,
        description="Globs, which become the rule `default`: events of these types are owed to it.",
    )
    account_id: AccountId | None = Field(
        None, description="For operators: whose webhook it is, when it is not their own."
    )


class WebhookChange(RequestBody):
    """What is to change; what is left out stays."""

    model_config = example({"url": "https://example.com/hooks/v2"})

    url: str | None = None
    description: Description | None = None

    @field_validator("url", "description", mode="before")
    @classmethod
    def _refuse_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("a text; leave the member out to keep what is there")
        return value


class Disabling(RequestBody):
    """Why nothing is to be sent any more."""

    model_config = example({"reason": "the receiver moves to another data centre"})

    reason: Annotated[str, Field(min_length=1, max_length=DESCRIPTION_CHARACTERS_MAX)] = (
        "disabled by its owner"
    )


class Rotation(RequestBody):
    """A new secret, and for how long the one before signs as well."""

    model_config = example({"gracePeriodSeconds": GRACE_S})

    secret: Secret | None = Field(default=None, repr=False, description="Left out, one is made.")
    grace_period_seconds: int = Field(default=GRACE_S, strict=True, ge=0, le=GRACE_S_MAX)


WEBHOOK_EXAMPLE: Final[dict[str, JsonValue]] = {
    "id": "wh_2yPqkM5dTn4v",
    "accountId": "acc_default",
    "url": "https://example.com/hooks",
    "description": "billing",
    "validation": "ping",
    "status": "ENABLED",
    "statusReason": None,
    "validatedAt": "2026-11-21T08:00:00.250Z",
    "failingSince": None,
    "previousSecretExpiresAt": None,
    "createdAt": "2026-11-21T08:00:00.000Z",
}


class WebhookDocument(Document):
    """A registered webhook, without its secret."""

    model_config = example(WEBHOOK_EXAMPLE)

    id: str
    account_id: str
    url: str
    description: str
    validation: Validation
    status: WebhookStatus = Field(description="Nothing is sent to it unless it is ENABLED.")
    status_reason: str | None = Field(description="Why it is not ENABLED.")
    validated_at: Moment | None = Field(description="When the receiver last proved to be yours.")
    failing_since: Moment | None = Field(description="Since when it has taken nothing.")
    previous_secret_expires_at: Moment | None = Field(
        description="Until then the secret before the last rotation signs as well."
    )
    created_at: Moment

    @classmethod
    def of(cls, webhook: Webhook, now_ms: int) -> Self:
        """The document of a webhook as of `now_ms`."""
        signs_twice = len(webhook.secrets_at(now_ms)) > 1
        return cls(
            id=webhook.id,
            account_id=webhook.account_id,
            url=webhook.url,
            description=webhook.description,
            validation=webhook.validation,
            status=webhook.status,
            status_reason=webhook.status_reason,
            validated_at=webhook.validated_ms,
            failing_since=webhook.failing_since_ms,
            previous_secret_expires_at=webhook.previous_secret_until_ms if signs_twice else None,
            created_at=webhook.created_ms,
        )


class WebhookWithSecret(WebhookDocument):
    """A webhook with the secret it has from now on; shown here and never again."""

    model_config = example(WEBHOOK_EXAMPLE | {"secret": SECRET_EXAMPLE})

    secret: str = Field(repr=False, description="Signs what is sent (Standard Webhooks).")

    @classmethod
    def of(cls, webhook: Webhook, now_ms: int) -> Self:
        """The document of a webhook, secret included."""
        return cls(**dict(WebhookDocument.of(webhook, now_ms)), secret=webhook.secret)
