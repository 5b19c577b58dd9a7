"""Routes of webhooks: register, read, change, verify, test, disable, delete."""

from typing import Annotated

from fastapi import APIRouter, Body, Response
from starlette.concurrency import run_in_threadpool

from app.api.admission import CallerDependency
from app.api.models.documents import Listing
from app.api.models.webhooks import (
    MissedDocument,
    RegisteredWebhook,
    StatisticsDocument,
    TrialDocument,
    WebhookDocument,
    WebhookWithSecret,
)
from app.api.openapi import ANY_ERROR, errors
from app.domain.model import Webhook, WebhookStatus
from app.domain.rules import DEFAULT_RULE, Rule
from app.domain.tallies import Span, last_hour_from_ms, summed
from app.http.dependencies import AccountId, Cursor, Limit, ServicesDependency
from app.http.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOT_VALIDATED,
    TOO_MANY_RULES,
    TOO_MANY_WEBHOOKS,
    URL_REFUSED,
)
from app.http.request_bodies import Disabling, Rotation, WebhookChange, WebhookRequest
from app.services import webhooks
from app.services.authentication import select_account
from app.services.services import Services, now_ms

router = APIRouter(prefix="/webhooks", tags=["webhooks"], responses=ANY_ERROR)


@router.post(
    "",
    operation_id="createWebhook",
    status_code=201,
    responses=errors(
        INVALID_REQUEST,
        URL_REFUSED,
        FORBIDDEN,
        NOT_FOUND,
        TOO_MANY_WEBHOOKS,
        TOO_MANY_RULES,
        MEDIA_TYPE_REFUSED,
    ),
)
async def create_webhook(
    body: WebhookRequest, response: Response, services: ServicesDependency, caller: CallerDependency
) -> RegisteredWebhook:
    """Register a webhook. Only this response has the secret that signs its requests.

    The receiver is verified at once. If it passes, the webhook is ENABLED; otherwise it is PENDING
    and `statusReason` says why: deploy the secret, then enable the webhook.
    """
    webhook = await webhooks.register_webhook(services, caller, body.registration())
    response.headers["location"] = f"/webhooks/{webhook.id}"
    is_covered = None
    if body.event_types:
        rule = Rule(webhook.id, DEFAULT_RULE, tuple(body.event_types))
        find = services.store.find_covered_rules
        is_covered = bool(await run_in_threadpool(find, webhook.account_id, [rule]))
    registered = dict(_with_secret(webhook, response, tuple(body.event_types or ()) or None))
    return RegisteredWebhook(**registered, covered_by_grant=is_covered)


def _with_secret(
    webhook: Webhook, response: Response, event_types: tuple[str, ...] | None
) -> WebhookWithSecret:
    response.headers["cache-control"] = "no-store"
    document = WebhookDocument.of(webhook, now_ms(), event_types=event_types)
    return WebhookWithSecret(**dict(document), secret=webhook.secret)


@router.get("", operation_id="listWebhooks", responses=errors(INVALID_REQUEST, FORBIDDEN))
def list_webhooks(
    services: ServicesDependency,
    caller: CallerDependency,
    status: WebhookStatus | None = None,
    account_id: AccountId = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[WebhookDocument]:
    """List webhooks, the latest first."""
    of_account = select_account(caller, account_id)
    page = services.store.webhooks(cursor, limit, status=status, of_account=of_account)
    present_ms = now_ms()
    ids = [webhook.id for webhook in page.items]
    backlogs, types = services.store.live_backlogs(ids), services.store.default_types(ids)
    active, retries = services.store.active_replays_of(ids), services.store.waiting_retries(ids)
    items = [
        WebhookDocument.of(
            webhook,
            present_ms,
            backlogs.get(webhook.id),
            active=active.get(webhook.id),
            event_types=types.get(webhook.id),
            retries=retries.get(webhook.id),
        )
        for webhook in page.items
    ]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{webhook_id}", operation_id="getWebhook", responses=errors(NOT_FOUND))
def get_webhook(
    webhook_id: str, services: ServicesDependency, caller: CallerDependency
) -> WebhookDocument:
    """Get a webhook."""
    return _document(services, services.store.webhook(webhook_id, of_account=caller.account_filter))


def _document(services: Services, webhook: Webhook) -> WebhookDocument:
    """Return the document of a webhook, with its retries and event types. Blocks."""
    backlog = services.store.live_backlogs([webhook.id]).get(webhook.id)
    types = services.store.default_types([webhook.id]).get(webhook.id)
    active = services.store.active_replays_of([webhook.id]).get(webhook.id)
    retries = services.store.waiting_retries([webhook.id]).get(webhook.id)
    return WebhookDocument.of(
        webhook, now_ms(), backlog, active=active, event_types=types, retries=retries
    )


@router.patch(
    "/{webhook_id}",
    operation_id="updateWebhook",
    responses=errors(INVALID_REQUEST, URL_REFUSED, NOT_FOUND, TOO_MANY_RULES, MEDIA_TYPE_REFUSED),
)
async def update_webhook(
    webhook_id: str, body: WebhookChange, services: ServicesDependency, caller: CallerDependency
) -> WebhookDocument:
    """Change a webhook; missing members keep their values.

    With a new URL it is PENDING until the receiver there is verified, which is tried at once.
    """
    webhook = await webhooks.update_webhook(
        services,
        caller,
        webhook_id,
        url=body.url,
        description=body.description,
        auto_recovery=body.auto_recovery,
        change_options=body.changed if body.changes_options else None,
        event_types=body.new_event_types,
    )
    return await run_in_threadpool(_document, services, webhook)


@router.delete(
    "/{webhook_id}", operation_id="deleteWebhook", status_code=204, responses=errors(NOT_FOUND)
)
def delete_webhook(webhook_id: str, services: ServicesDependency, caller: CallerDependency) -> None:
    """Delete a webhook and its secret; its active replay is cancelled."""
    services.store.delete_webhook(webhook_id, of_account=caller.account_filter, actor=caller.actor)


@router.post(
    "/{webhook_id}/enable",
    operation_id="enableWebhook",
    responses=errors(NOT_FOUND, NOT_VALIDATED),
)
async def enable_webhook(
    webhook_id: str, services: ServicesDependency, caller: CallerDependency
) -> WebhookDocument:
    """Verify the receiver again, and enable the webhook if it passes."""
    webhook = await webhooks.enable_webhook(services, caller, webhook_id)
    return await run_in_threadpool(_document, services, webhook)


@router.post(
    "/{webhook_id}/disable",
    operation_id="disableWebhook",
    responses=errors(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def disable_webhook(
    webhook_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    body: Annotated[Disabling, Body()] = Disabling(),  # noqa: B008  frozen
) -> WebhookDocument:
    """Disable a webhook. Its events are still logged, and can be replayed."""
    webhook = services.store.disable_webhook(
        webhook_id, body.reason, of_account=caller.account_filter
    )
    return _document(services, webhook)


@router.post(
    "/{webhook_id}/secret/rotate",
    operation_id="rotateSecret",
    responses=errors(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def rotate_secret(
    webhook_id: str,
    response: Response,
    services: ServicesDependency,
    caller: CallerDependency,
    body: Annotated[Rotation, Body()] = Rotation(),  # noqa: B008  frozen
) -> WebhookWithSecret:
    """Give a webhook a new secret; only this response has it.

    During the grace period the previous secret also signs, so that the receiver can be updated
    later. One previous secret is kept: a second rotation drops the first. Setting the current
    secret again changes nothing, so a request may be repeated.
    """
    webhook = webhooks.rotate_secret(
        services, caller, webhook_id, body.secret, body.grace_period_seconds
    )
    types = services.store.default_types([webhook.id]).get(webhook.id)
    return _with_secret(webhook, response, types)


@router.get(
    "/{webhook_id}/statistics",
    operation_id="getWebhookStatistics",
    responses=errors(NOT_FOUND),
)
def get_statistics(
    webhook_id: str, services: ServicesDependency, caller: CallerDependency
) -> StatisticsDocument:
    """Get statistics of live deliveries in the last hour, a few seconds old.

    Replays are not included.
    """
    present_ms = now_ms()
    from_ms = last_hour_from_ms(present_ms)
    found = services.store.tallies(
        webhook_id, Span.SETTLED, from_ms, of_account=caller.account_filter
    )
    return StatisticsDocument.of(summed(found, from_ms), present_ms)


@router.get("/{webhook_id}/missed", operation_id="listMissedHours", responses=errors(NOT_FOUND))
def list_missed_hours(
    webhook_id: str, services: ServicesDependency, caller: CallerDependency
) -> MissedDocument:
    """List the hours of event time with events that were not delivered live, the latest first.

    The list covers the history that can be replayed, and says which hours were replayed since.
    """
    present_ms = now_ms()
    from_ms = present_ms - services.settings.history_ms
    hours = services.store.missed_hours(webhook_id, from_ms, of_account=caller.account_filter)
    return MissedDocument.of(hours, present_ms)


@router.post("/{webhook_id}/test", operation_id="testWebhook", responses=errors(NOT_FOUND))
async def test_webhook(
    webhook_id: str, services: ServicesDependency, caller: CallerDependency
) -> TrialDocument:
    """Send a signed event of the type `rewind.test` to a webhook now, whatever its status.

    It is sent once, is not logged, and changes nothing; the result is the receiver's response.
    """
    return TrialDocument.model_validate(await webhooks.send_test(services, caller, webhook_id))
