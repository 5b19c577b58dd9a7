"""Response bodies of the routes of notice endpoints."""

from typing import Final, Self

from pydantic import Field, JsonValue

from app.api.models.documents import Document, Moment
from app.domain.account_notices import NoticeEndpoint, NoticeType
from app.domain.model import WebhookStatus
from app.http.request_bodies import SECRET_EXAMPLE, example

_EXAMPLE: Final[dict[str, JsonValue]] = {
    "id": "ne_8fQm2ZpLw1Xc",
    "accountId": "acc_default",
    "url": "https://example.com/rewind-notices",
    "description": "on-call",
    "eventTypes": ["webhook.failing", "webhook.recovered", "webhook.disabled"],
    "status": "ENABLED",
    "statusReason": None,
    "validatedAt": "2026-11-21T08:00:00.250Z",
    "lastDeliveredAt": "2026-11-21T09:30:00.000Z",
    "lastFailedAt": None,
    "lastError": None,
    "previousSecretExpiresAt": None,
    "createdAt": "2026-11-21T08:00:00.000Z",
}


class NoticeEndpointDocument(Document):
    """An endpoint for notices of an account, without its secret."""

    model_config = example(_EXAMPLE)

    id: str
    account_id: str
    url: str = Field(description="Where notices are sent; `mailto:` is an e-mail address.")
    description: str
    event_types: tuple[NoticeType, ...] | None = Field(
        description="The notices that it gets; null for all."
    )
    status: WebhookStatus = Field(description="Notices are only sent to an ENABLED endpoint.")
    status_reason: str | None = Field(description="Why the last verification failed.")
    validated_at: Moment | None = Field(
        description="The last time that the receiver passed the verification. Null for an e-mail "
        "address that is not confirmed."
    )
    last_delivered_at: Moment | None = Field(description="The last notice that it accepted.")
    last_failed_at: Moment | None = Field(description="The last failed attempt.")
    last_error: str | None = Field(description="Why that attempt failed.")
    previous_secret_expires_at: Moment | None = Field(
        description="Until when the previous secret signs as well."
    )
    created_at: Moment

    @classmethod
    def of(cls, endpoint: NoticeEndpoint, present_ms: int) -> Self:
        """The document of an endpoint at a time."""
        signs_twice = len(endpoint.secrets_at(present_ms)) > 1
        return cls(
            id=endpoint.id,
            account_id=endpoint.account_id,
            url=endpoint.url,
            description=endpoint.description,
            event_types=endpoint.event_types or None,
            status=endpoint.status,
            status_reason=endpoint.status_reason,
            validated_at=endpoint.validated_ms,
            last_delivered_at=endpoint.delivered_ms,
            last_failed_at=endpoint.failed_ms,
            last_error=endpoint.failure,
            previous_secret_expires_at=endpoint.previous_secret_until_ms if signs_twice else None,
            created_at=endpoint.created_ms,
        )


class NoticeEndpointWithSecret(NoticeEndpointDocument):
    """A notice endpoint with the secret that signs its notices."""

    model_config = example(_EXAMPLE | {"secret": SECRET_EXAMPLE})

    secret: str | None = Field(
        json_schema_extra={"format": "password"},
        description="Null for an e-mail address: mails are not signed.",
    )

    @classmethod
    def of(cls, endpoint: NoticeEndpoint, present_ms: int) -> Self:
        """The document of an endpoint at a time, with its secret."""
        document = NoticeEndpointDocument.of(endpoint, present_ms)
        secret = endpoint.secret if endpoint.mail_address is None else None
        return cls(**dict(document), secret=secret)
