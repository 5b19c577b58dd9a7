"""Response bodies of deliveries."""

from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final, Literal, Self

from pydantic import AliasChoices, Field

from app.api.models.documents import Document, Moment
from app.domain.deliveries import (
    AttemptRecord,
    AttemptTrigger,
    DeliveryReplay,
    DeliveryStatus,
    format_delivery_id,
)
from app.domain.resends import Resend
from app.http.request_bodies import example
from app.log.deliveries import DeliveryDetail

_DELIVERY: Final[dict[str, Any]] = {
    "id": "dlv_AwsbZWFzdI7z0xI",
    "eventId": "evt_31f6",
    "webhookId": "wh_2yPqkM5dTn4v",
    "eventType": "follow.created",
    "time": "2026-11-21T08:00:00.000Z",
    "status": "failed",
    "reason": "HTTP 503 Service Unavailable",
    "attemptCount": 4,
    "responseStatus": 503,
    "settledTime": "2026-11-21T08:04:36.120Z",
    "durationMs": 31.2,
    "nextAttemptTime": None,
}


class DeliveryDocument(Document):
    """A delivery: an event that is addressed to a webhook."""

    model_config = example(dict(_DELIVERY))

    id: str
    event_id: str
    webhook_id: str
    event_type: str
    time: Moment = Field(validation_alias="time_ms", description="The event time.")
    status: DeliveryStatus | None = Field(description="null if its outcome was not found.")
    reason: str | None = Field(description="Why it failed or was skipped.")
    attempt_count: int = Field(
        # By its own name first: `DeliveryDetailDocument` has a field `attempts`.
        validation_alias=AliasChoices("attempt_count", "attempts"),
        description="Attempts by live delivery and scheduled retries. While a delivery waits for a "
        "live retry, lists do not have them.",
    )
    response_status: int | None = Field(description="The last HTTP status.")
    settled_time: Moment | None = Field(
        validation_alias="settled_ms", description="When it succeeded, failed or was skipped."
    )
    duration_ms: float | None = Field(description="The duration of the last attempt.")
    next_attempt_time: Moment | None = Field(
        validation_alias="next_attempt_ms",
        description="When a retry is due. Lists have only that of scheduled retries.",
    )


class DeliveriesDocument(Document):
    """A page of deliveries: pending ones first, then the others, last settled first."""

    items: list[DeliveryDocument]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null at the end.")
    is_partial: bool = Field(
        description="Whether the page ended early because it had read as much as a page may; "
        "`nextCursor` continues."
    )
    from_: Moment = Field(
        validation_alias="from_ms",
        serialization_alias="from",
        description="The begin of the window, as far as the log has it.",
    )
    skipped: list[str] = Field(description="What of the log cannot be read.")


class UndeliveredDocument(DeliveriesDocument):
    """A page of failed, skipped or pending deliveries of several webhooks, the latest first."""

    model_config = example(
        {
            "items": [_DELIVERY],
            "nextCursor": "s1837-wh_2yPqkM5dTn4v",
            "isPartial": False,
            "from": "2026-11-21T08:00:00.000Z",
            "skipped": [],
            "webhookIds": ["wh_2yPqkM5dTn4v"],
            "omittedWebhooks": 1,
            "omittedWebhookIds": ["wh_8sWd41xQk0aT"],
        }
    )

    webhook_ids: list[str] = Field(
        description="The webhooks of the list: those with most such events."
    )
    omitted_webhooks: int = Field(
        description="How many further webhooks have such events. This list leaves them out."
    )
    omitted_webhook_ids: list[str] = Field(description="Their ids, up to a hundred.")


class AttemptDocument(Document):
    """A delivery attempt."""

    number: int
    time: Moment = Field(description="When it began.")
    duration_ms: float | None
    status: Literal["succeeded", "failed"]
    response_status: int | None = Field(description="null without a response.")
    error: str | None
    response: str | None = Field(description="The first KB of a response that is not 2xx.")
    trigger: AttemptTrigger
    server: str | None = Field(description="The process that sent it; for operators.")

    @classmethod
    def of(cls, attempt: AttemptRecord, *, is_operator: bool) -> Self:
        """The document of an attempt."""
        return cls(
            number=attempt.number,
            time=attempt.started_ms,
            duration_ms=attempt.duration_ms,
            status="succeeded" if attempt.reason is None else "failed",
            response_status=attempt.status,
            error=attempt.reason,
            response=attempt.response,
            trigger=attempt.trigger,
            server=attempt.server if is_operator else None,
        )


class DeliveryReplayDocument(Document):
    """What a replay did with the event of a delivery.

    If it succeeded, only `deliveredBy` says more: replays store no record of each event that they
    deliver.
    """

    replay_id: str
    status: Literal["succeeded", "failed"]
    delivered_by: Moment | None = Field(
        description="When it had succeeded at the latest: the time of the next recorded progress "
        "of the replay, some seconds later; for a replay of hours, some minutes."
    )
    attempts: int | None
    last_attempt_at: Moment | None = Field(description="When the last attempt ended.")
    duration_ms: int | None = Field(description="The duration of the last attempt.")
    response_status: int | None
    error: str | None
    response: str | None = Field(description="The first KB of the last response.")
    server: str | None = Field(description="The worker that sent it; for operators.")

    @classmethod
    def of(cls, replay: DeliveryReplay, *, is_operator: bool) -> Self:
        """The document of a replay."""
        failure = replay.failure
        if failure is None:
            return cls(
                replay_id=replay.replay_id,
                status="succeeded",
                delivered_by=replay.delivered_by_ms,
                attempts=None,
                last_attempt_at=None,
                duration_ms=None,
                response_status=None,
                error=None,
                response=None,
                server=None,
            )
        return cls(
            replay_id=replay.replay_id,
            status="failed",
            delivered_by=None,
            attempts=failure.attempts,
            last_attempt_at=failure.last_attempt_ms,
            duration_ms=failure.duration_ms,
            response_status=failure.status,
            error=failure.reason,
            response=failure.response,
            server=failure.worker if is_operator else None,
        )


class RecordHeaderDocument(Document):
    """A header of the event's record."""

    name: str
    value: str | None


class DeliveryDetailDocument(DeliveryDocument):
    """A delivery with the event's body and headers, and its attempts."""

    model_config = example(
        _DELIVERY
        | {
            "payload": '{"id":"evt_31f6","type":"follow.created"}',
            "payloadBase64": None,
            "payloadBytes": 41,
            "headers": [{"name": "event-id", "value": "evt_31f6"}],
            "attempts": [
                {
                    "number": 4,
                    "time": "2026-11-21T08:04:36.089Z",
                    "durationMs": 31.2,
                    "status": "failed",
                    "responseStatus": 503,
                    "error": "HTTP 503 Service Unavailable",
                    "response": "overloaded",
                    "trigger": "live",
                    "server": None,
                }
            ],
            "pendingResends": 0,
            "replays": [
                {
                    "replayId": "rpl_8c1f",
                    "status": "succeeded",
                    "deliveredBy": "2026-11-21T09:15:02.417Z",
                    "attempts": None,
                    "lastAttemptAt": None,
                    "durationMs": None,
                    "responseStatus": None,
                    "error": None,
                    "response": None,
                    "server": None,
                }
            ],
        }
    )

    payload: str | None = Field(description="The body that is sent; null if it is not UTF-8.")
    payload_base64: str | None = Field(description="The body if it is not UTF-8.")
    payload_bytes: int
    headers: list[RecordHeaderDocument] = Field(description="As the event was published.")
    attempts: list[AttemptDocument] = Field(
        description="Live attempts and those of resends, in order of time."
    )
    pending_resends: int = Field(description="Resends that are not sent yet.")
    replays: list[DeliveryReplayDocument] = Field(
        description="The latest replays that sent the event again, the oldest first."
    )

    @classmethod
    def of_detail(cls, found: DeliveryDetail, *, is_operator: bool) -> Self:
        """The document of a delivery."""
        return cls(
            **dict(DeliveryDocument.model_validate(found.summary)),
            **content_members(found.body, found.header_texts(with_internal=is_operator)),
            attempts=[AttemptDocument.of(each, is_operator=is_operator) for each in found.attempts],
            pending_resends=found.pending_resends,
            replays=[
                DeliveryReplayDocument.of(each, is_operator=is_operator) for each in found.replays
            ],
        )


def content_members(body: bytes, headers: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """The members of a document that show the body and the headers of an event."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    return {
        "payload": text,
        "payload_base64": b64encode(body).decode() if text is None else None,
        "payload_bytes": len(body),
        "headers": [RecordHeaderDocument(name=name, value=value) for name, value in headers],
    }


class ResendDocument(Document):
    """A delivery that is sent once more. `GET /deliveries/{id}` shows the attempt."""

    model_config = example(
        {
            "id": "rsd_5f1d07a4c3b2e6f18a90d7c4",
            "deliveryId": "dlv_AwsbZWFzdI7z0xI",
            "eventId": "evt_31f6",
            "webhookId": "wh_2yPqkM5dTn4v",
            "status": "pending",
            "created": "2026-11-21T09:00:00.000Z",
        }
    )

    id: str
    delivery_id: str
    event_id: str
    webhook_id: str
    status: DeliveryStatus
    created: Moment

    @classmethod
    def of(cls, resend: Resend) -> Self:
        """The document of a resend."""
        return cls(
            id=resend.id,
            delivery_id=format_delivery_id(resend.place),
            event_id=resend.event_id,
            webhook_id=resend.webhook_id,
            status=resend.status,
            created=resend.created_ms,
        )


class ResendsDocument(Document):
    """The resends of a request, in its order."""

    items: list[ResendDocument]
