"""Bodies of the routes of webhooks."""

from typing import Annotated, Final, Self

from pydantic import Field, JsonValue, field_validator

from app.api.models.documents import Document, Moment, RequestBody, example
from app.replay.model import Webhook

DESCRIPTION_CHARACTERS_MAX: Final = 500

Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]


class WebhookRequest(RequestBody):
    """A webhook to register."""

    model_config = example({"url": "https://example.com/hooks", "description": "billing"})

    url: str = Field(description="Where events are sent: https, and a public address.")
    description: Description = ""


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


WEBHOOK_EXAMPLE: Final[dict[str, JsonValue]] = {
    "id": "wh_2yPqkM5dTn4v",
    "url": "https://example.com/hooks",
    "description": "billing",
    "createdAt": "2026-11-21T08:00:00.000Z",
}


class WebhookDocument(Document):
    """A registered webhook, without its secret."""

    model_config = example(WEBHOOK_EXAMPLE)

    id: str
    url: str
    description: str
    created_at: Moment

    @classmethod
    def of(cls, webhook: Webhook) -> Self:
        """The document of a webhook."""
        return cls(
            id=webhook.id,
            url=webhook.url,
            description=webhook.description,
            created_at=webhook.created_ms,
        )


class WebhookWithSecret(WebhookDocument):
    """A webhook just registered; its secret is shown here and never again."""

    model_config = example(
        WEBHOOK_EXAMPLE | {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwNEED2GHJdWk="}
    )

    secret: str = Field(repr=False, description="Signs what is sent (Standard Webhooks).")

    @classmethod
    def of(cls, webhook: Webhook) -> Self:
        """The document of a webhook, secret included."""
        return cls(**dict(WebhookDocument.of(webhook)), secret=webhook.secret)
