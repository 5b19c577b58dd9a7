"""Routes of webhooks: register, look up, change, forget."""

from fastapi import APIRouter, Response

from app.api.doors import DoorsDependency
from app.api.models.documents import Listing
from app.api.models.webhooks import (
    WebhookChange,
    WebhookDocument,
    WebhookRequest,
    WebhookWithSecret,
)
from app.api.openapi import refusals
from app.api.paging import Cursor, Limit
from app.api.problems import INVALID_REQUEST, MEDIA_TYPE_REFUSED, NOT_FOUND, URL_REFUSED
from app.replay.model import NewWebhook
from app.webhooks.signing import new_secret

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


@router.post(
    "",
    operation_id="createWebhook",
    status_code=201,
    responses=refusals(INVALID_REQUEST, URL_REFUSED, MEDIA_TYPE_REFUSED),
)
def create_webhook(
    body: WebhookRequest, response: Response, doors: DoorsDependency
) -> WebhookWithSecret:
    """Register a webhook. The answer, and it alone, holds the secret that signs its requests."""
    doors.guard.check_url(body.url)
    webhook = doors.store.create_webhook(NewWebhook(body.url, body.description, new_secret()))
    response.headers["location"] = f"/webhooks/{webhook.id}"
    response.headers["cache-control"] = "no-store"
    return WebhookWithSecret.of(webhook)


@router.get("", operation_id="listWebhooks", responses=refusals(INVALID_REQUEST))
def list_webhooks(
    doors: DoorsDependency, cursor: Cursor = None, limit: Limit = 50
) -> Listing[WebhookDocument]:
    """List webhooks, the latest first."""
    page = doors.store.webhooks(cursor=cursor, limit=limit)
    items = [WebhookDocument.of(webhook) for webhook in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{webhook_id}", operation_id="getWebhook", responses=refusals(NOT_FOUND))
def get_webhook(webhook_id: str, doors: DoorsDependency) -> WebhookDocument:
    """Look a webhook up."""
    return WebhookDocument.of(doors.store.webhook(webhook_id))


@router.patch(
    "/{webhook_id}",
    operation_id="updateWebhook",
    responses=refusals(INVALID_REQUEST, URL_REFUSED, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def update_webhook(webhook_id: str, body: WebhookChange, doors: DoorsDependency) -> WebhookDocument:
    """Change a webhook; what is left out stays. Replays that go on use the new URL when claimed."""
    if body.url is not None:
        doors.guard.check_url(body.url)
    webhook = doors.store.update_webhook(webhook_id, url=body.url, description=body.description)
    return WebhookDocument.of(webhook)


@router.delete(
    "/{webhook_id}", operation_id="deleteWebhook", status_code=204, responses=refusals(NOT_FOUND)
)
def delete_webhook(webhook_id: str, doors: DoorsDependency) -> None:
    """Forget a webhook and its secret; an active replay of it is cancelled."""
    doors.store.delete_webhook(webhook_id)
