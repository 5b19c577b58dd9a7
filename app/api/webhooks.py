"""Routes of webhooks: register, look up, change, prove, disable, forget."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from app.api import webhook_changes
from app.api.access import AccountId, CallerDependency, account_meant
from app.api.doors import DoorsDependency, now_ms
from app.api.models.documents import Listing
from app.api.models.webhooks import (
    Disabling,
    Rotation,
    WebhookChange,
    WebhookDocument,
    WebhookRequest,
    WebhookWithSecret,
)
from app.api.openapi import refusals
from app.api.paging import Cursor, Limit
from app.api.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOT_VALIDATED,
    TOO_MANY_WEBHOOKS,
    URL_REFUSED,
)
from app.domain.model import Webhook, WebhookStatus

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


@router.post(
    "",
    operation_id="createWebhook",
    status_code=201,
    responses=refusals(
        INVALID_REQUEST, URL_REFUSED, FORBIDDEN, NOT_FOUND, TOO_MANY_WEBHOOKS, MEDIA_TYPE_REFUSED
    ),
)
async def create_webhook(
    body: WebhookRequest, response: Response, doors: DoorsDependency, caller: CallerDependency
) -> WebhookWithSecret:
    """Register a webhook. The answer, and it alone, holds the secret that signs its requests.

    The receiver is asked at once to prove that it is yours. If it does, the webhook is ENABLED;
    else it is PENDING and `statusReason` says why: deploy the secret, then enable it.
    """
    webhook = await webhook_changes.register(doors, caller, body)
    response.headers["location"] = f"/webhooks/{webhook.id}"
    return _with_secret(webhook, response)


def _with_secret(webhook: Webhook, response: Response) -> WebhookWithSecret:
    response.headers["cache-control"] = "no-store"
    return WebhookWithSecret.of(webhook, now_ms())


@router.get("", operation_id="listWebhooks", responses=refusals(INVALID_REQUEST, FORBIDDEN))
def list_webhooks(
    doors: DoorsDependency,
    caller: CallerDependency,
    status: WebhookStatus | None = None,
    account_id: AccountId = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[WebhookDocument]:
    """List webhooks, the latest first."""
    of_account = account_meant(caller, account_id)
    page = doors.store.webhooks(cursor, limit, status=status, of_account=of_account)
    present_ms = now_ms()
    items = [WebhookDocument.of(webhook, present_ms) for webhook in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{webhook_id}", operation_id="getWebhook", responses=refusals(NOT_FOUND))
def get_webhook(
    webhook_id: str, doors: DoorsDependency, caller: CallerDependency
) -> WebhookDocument:
    """Look a webhook up."""
    return WebhookDocument.of(doors.store.webhook(webhook_id, of_account=caller.sees), now_ms())


@router.patch(
    "/{webhook_id}",
    operation_id="updateWebhook",
    responses=refusals(INVALID_REQUEST, URL_REFUSED, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
async def update_webhook(
    webhook_id: str, body: WebhookChange, doors: DoorsDependency, caller: CallerDependency
) -> WebhookDocument:
    """Change a webhook; what is left out stays.

    At another URL it is PENDING until the receiver there has proved to be yours, which it is
    asked to at once.
    """
    webhook = await webhook_changes.change(doors, caller, webhook_id, body)
    return WebhookDocument.of(webhook, now_ms())


@router.delete(
    "/{webhook_id}", operation_id="deleteWebhook", status_code=204, responses=refusals(NOT_FOUND)
)
def delete_webhook(webhook_id: str, doors: DoorsDependency, caller: CallerDependency) -> None:
    """Forget a webhook and its secret; an active replay of it is cancelled."""
    doors.store.delete_webhook(webhook_id, of_account=caller.sees, actor=caller.id)


@router.post(
    "/{webhook_id}/enable",
    operation_id="enableWebhook",
    responses=refusals(NOT_FOUND, NOT_VALIDATED),
)
async def enable_webhook(
    webhook_id: str, doors: DoorsDependency, caller: CallerDependency
) -> WebhookDocument:
    """Ask the receiver once more to prove that it is yours, and enable the webhook if it does."""
    webhook = await webhook_changes.enable(doors, caller, webhook_id)
    return WebhookDocument.of(webhook, now_ms())


@router.post(
    "/{webhook_id}/disable",
    operation_id="disableWebhook",
    responses=refusals(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def disable_webhook(
    webhook_id: str,
    doors: DoorsDependency,
    caller: CallerDependency,
    body: Annotated[Disabling, Body()] = Disabling(),  # noqa: B008  frozen
) -> WebhookDocument:
    """Send nothing more to a webhook. Its events are logged all the same, and can be replayed."""
    webhook = doors.store.disable_webhook(webhook_id, body.reason, of_account=caller.sees)
    return WebhookDocument.of(webhook, now_ms())


@router.post(
    "/{webhook_id}/secret/rotate",
    operation_id="rotateSecret",
    responses=refusals(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def rotate_secret(
    webhook_id: str,
    response: Response,
    doors: DoorsDependency,
    caller: CallerDependency,
    body: Annotated[Rotation, Body()] = Rotation(),  # noqa: B008  frozen
) -> WebhookWithSecret:
    """Give a webhook a new secret; the answer, and it alone, holds it.

    For the grace period the secret before signs as well, so that the receiver may learn the new
    one in its own time. One secret before is kept: rotating twice within it drops the first. The
    secret that the webhook has already changes nothing, so that a request may be repeated.
    """
    webhook = webhook_changes.rotate_secret(doors, caller, webhook_id, body)
    return _with_secret(webhook, response)
