"""Response bodies of events."""

from typing import Self

from pydantic import Field

from app.api.models.deliveries import DeliveryDocument, RecordHeaderDocument, content_members
from app.api.models.documents import Document, Moment
from app.http.request_bodies import example
from app.services.event_lookup import DELIVERIES_MAX, FoundEvent


class EventDocument(Document):
    """An event as it was published, and its deliveries."""

    model_config = example(
        {
            "id": "evt_31f6",
            "type": "follow.created",
            "time": "2026-11-21T08:00:00.000Z",
            "accountId": None,
            "payload": '{"id":"evt_31f6","type":"follow.created"}',
            "payloadBase64": None,
            "payloadBytes": 41,
            "headers": [{"name": "event-id", "value": "evt_31f6"}],
            "deliveries": [
                {
                    "id": "dlv_AwsbZWFzdI7z0xI",
                    "eventId": "evt_31f6",
                    "webhookId": "wh_2yPqkM5dTn4v",
                    "eventType": "follow.created",
                    "time": "2026-11-21T08:00:00.000Z",
                    "status": "succeeded",
                    "reason": None,
                    "attemptCount": 1,
                    "responseStatus": 204,
                    "settledTime": "2026-11-21T08:00:00.120Z",
                    "durationMs": 31.2,
                }
            ],
            "hasMore": False,
        }
    )

    id: str
    type: str
    time: Moment = Field(description="The event time.")
    account_id: str | None = Field(
        description="The only account whose webhooks may receive it; null if rules and grants "
        "decide. For operators."
    )
    payload: str | None = Field(description="The body that is sent; null if it is not UTF-8.")
    payload_base64: str | None = Field(description="The body if it is not UTF-8.")
    payload_bytes: int
    headers: list[RecordHeaderDocument] = Field(description="As the event was published.")
    deliveries: list[DeliveryDocument] = Field(
        description=f"Up to {DELIVERIES_MAX}, by webhook; none if no rule has matched the event."
    )
    has_more: bool = Field(description="Whether there may be further deliveries.")

    @classmethod
    def of(cls, found: FoundEvent, *, is_operator: bool) -> Self:
        """The document of an event."""
        return cls(
            id=found.id,
            type=found.type,
            time=found.time_ms,
            account_id=found.account_id if is_operator else None,
            **content_members(found.body, found.header_texts(with_internal=is_operator)),
            deliveries=[
                DeliveryDocument.model_validate(each.detail.summary) for each in found.deliveries
            ],
            has_more=found.has_more,
        )
