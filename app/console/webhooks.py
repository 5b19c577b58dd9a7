"""The list of webhooks with their delivery statistics, and the registration of a new one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.forms import REJECTIONS, Form, parse_body
from app.console.page_requests import ChangeRequest, EditorRequest, PageRequest, ViewerRequest
from app.console.urls import PREFIX, WEBHOOKS, page_url
from app.domain.live_backlog import LiveBacklog, WebhookHealth, health_of
from app.domain.model import Replay, Validation, Webhook, WebhookStatus
from app.domain.tallies import DeliveryTally, Span, last_hour_from_ms
from app.http.dependencies import AccountId, Cursor
from app.http.problems import INVALID_REQUEST, Problem
from app.http.request_bodies import WebhookRequest
from app.services.authentication import select_account
from app.services.errors import FieldError
from app.services.services import Services, now_ms
from app.services.webhooks import register_webhook
from app.store.pages import Page

ROWS: Final = 50

FIELDS: Final = ("url", "description", "validation", "eventTypes")
"""The fields of the registration form. Operators also have `accountId`."""

router = APIRouter(prefix=PREFIX)

_StatusName = Annotated[str, Query(alias="status", max_length=40)]


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook with its deliveries of the last hour, its missed events and its active replay."""

    webhook: Webhook
    hour: DeliveryTally
    missed: int
    active: Replay | None
    backlog: LiveBacklog | None

    @property
    def health(self) -> WebhookHealth | None:
        """Whether its receiver accepts live deliveries."""
        return health_of(self.webhook, self.backlog, self.active)

    @property
    def attempted(self) -> int:
        """The events of the last hour that came while the webhook was ENABLED."""
        return self.hour.settled - self.hour.disabled


@dataclass(frozen=True, slots=True)
class StatusTab:
    """A link to the webhooks with one status, or all."""

    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class _WebhookFilter:
    status: WebhookStatus | None
    account_id: str | None

    def url(self, cursor: str | None = None) -> str:
        """Return the URL of the list with this filter."""
        fields = {"status": self.status, "accountId": self.account_id, "cursor": cursor}
        return page_url(WEBHOOKS, fields)


@router.get("/webhooks")
async def webhooks_page(
    request: ViewerRequest,
    status: _StatusName = "",
    account_id: AccountId = None,
    cursor: Cursor = None,
) -> Response:
    """List webhooks, latest first."""
    wanted = _WebhookFilter(_parse_status(status), account_id or None)
    of_account = select_account(request.key, wanted.account_id)
    page, rows = await run_in_threadpool(
        read_rows, request.services, wanted.status, cursor or None, of_account
    )
    settings = request.services.settings
    return await request.render(
        "webhooks.html",
        wanted=wanted,
        tabs=_tabs(wanted),
        rows=rows,
        history_days=settings.history_days,
        origin=settings.public_url or str(request.http.base_url).rstrip("/"),
        older=page.next_cursor and wanted.url(page.next_cursor),
        newest=wanted.url() if cursor else None,
    )


def _parse_status(name: str) -> WebhookStatus | None:
    try:
        return WebhookStatus(name) if name else None
    except ValueError:
        error = FieldError("status", name, ", ".join(WebhookStatus))
        raise Problem.of_fields(INVALID_REQUEST, [error]) from None


def read_rows(
    services: Services, status: WebhookStatus | None, cursor: str | None, of_account: str | None
) -> tuple[Page[Webhook], list[WebhookRow]]:
    """Return a page of webhooks, latest first, and their rows."""
    store, present_ms = services.store, now_ms()
    page = store.webhooks(cursor, ROWS, status=status, of_account=of_account)
    ids = [webhook.id for webhook in page.items]
    hour_from_ms = last_hour_from_ms(present_ms)
    hours = store.sum_tallies(ids, Span.SETTLED, hour_from_ms)
    history = store.sum_tallies(ids, Span.EVENT, present_ms - services.settings.history_ms)
    active = store.active_replays_of(ids)
    backlogs = store.live_backlogs(ids)
    empty = DeliveryTally(hour_from_ms)
    rows = [
        WebhookRow(
            webhook,
            hours.get(webhook.id, empty),
            history.get(webhook.id, empty).missed,
            active.get(webhook.id),
            backlogs.get(webhook.id),
        )
        for webhook in page.items
    ]
    return page, rows


def _tabs(wanted: _WebhookFilter) -> list[StatusTab]:
    choices: Mapping[str, WebhookStatus | None] = {"All": None} | {
        str(status): status for status in WebhookStatus
    }
    return [
        StatusTab(words, _WebhookFilter(status, wanted.account_id).url(), status is wanted.status)
        for words, status in choices.items()
    ]


@router.get("/webhooks/new")
async def registration_page(request: EditorRequest) -> Response:
    """Show the registration form."""
    typed = dict.fromkeys((*FIELDS, "accountId"), "") | {"validation": str(Validation.PING)}
    return await request.render_form("webhook_new.html", None, typed=typed)


@router.post("/webhooks", operation_id="createWebhook")
async def register(request: ChangeRequest) -> Response:
    """Register a webhook. Only this response shows its secret."""
    try:
        registration = _webhook_request(request.form).registration()
        webhook = await register_webhook(request.services, request.key, registration)
    except REJECTIONS as error:
        # Without a field for the account, its errors are shown above the form.
        fields = (*FIELDS, "accountId") if request.viewer.is_operator else FIELDS
        rejection = request.reject(error, fields)
        typed = {name: request.form[name] for name in fields}
        return await request.render_form("webhook_new.html", rejection, typed=typed)
    request.log_change(200, webhook.id)
    return await request.render("webhook_secret.html", webhook=webhook, is_new=True)


def _webhook_request(form: Form) -> WebhookRequest:
    given: dict[str, object] = {
        "url": form["url"],
        "description": form["description"],
        "validation": form["validation"],
        # Globs contain no white space.
        "eventTypes": form["eventTypes"].split() or None,
        "accountId": form["accountId"] or None,
    }
    return parse_body(WebhookRequest, given)


async def read_webhook(request: PageRequest, webhook_id: str) -> Webhook:
    """Return a webhook that the viewer may see.

    Raises:
        WebhookNotFound: no webhook of the viewer has this id.
        StoreUnavailable.
    """
    return await run_in_threadpool(
        request.services.store.webhook, webhook_id, of_account=request.key.account_filter
    )
