"""The list of webhooks: where events are sent, whether they arrive, and what was missed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.access import AccountId, account_meant
from app.api.doors import Doors, DoorsDependency, now_ms
from app.api.paging import Cursor
from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.console.addresses import address
from app.console.gate import ViewerDependency
from app.console.rendering import rendered
from app.domain.model import Replay, Webhook, WebhookStatus
from app.domain.tallies import DeliveryTally, Span, last_hour_from_ms
from app.store.pages import Page

ROWS: Final = 50

WEBHOOKS: Final = "/console/webhooks"

router = APIRouter()

_StatusName = Annotated[str, Query(alias="status", max_length=40)]


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook of the list: what was settled in the last hour, missed in all, and is active."""

    webhook: Webhook
    hour: DeliveryTally
    missed: int
    active: Replay | None

    @property
    def owed(self) -> int:
        """What was settled in the last hour while the webhook was ENABLED."""
        return self.hour.settled - self.hour.disabled


@dataclass(frozen=True, slots=True)
class Tab:
    """A link to the webhooks of one status, or of all."""

    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which webhooks are listed."""

    status: WebhookStatus | None
    account_id: str | None

    def url(self, cursor: str | None = None) -> str:
        """Where they are listed."""
        fields = {"status": self.status, "accountId": self.account_id, "cursor": cursor}
        return address(WEBHOOKS, fields)


@router.get("/webhooks")
async def webhooks_page(
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    status: _StatusName = "",
    account_id: AccountId = None,
    cursor: Cursor = None,
) -> Response:
    """List webhooks, the latest first."""
    wanted = _Wanted(_status(status), account_id or None)
    of_account = account_meant(viewer.key, wanted.account_id)
    page, rows = await run_in_threadpool(_look, doors, wanted.status, cursor or None, of_account)
    return await rendered(
        request,
        "webhooks.html",
        wanted=wanted,
        tabs=_tabs(wanted),
        rows=rows,
        history_days=doors.settings.history_days,
        origin=doors.settings.public_url or str(request.base_url).rstrip("/"),
        older=page.next_cursor and wanted.url(page.next_cursor),
        newest=wanted.url() if cursor else None,
    )


def _status(name: str) -> WebhookStatus | None:
    try:
        return WebhookStatus(name) if name else None
    except ValueError:
        refused = FieldError("status", name, ", ".join(WebhookStatus))
        raise Problem.of_fields(INVALID_REQUEST, [refused]) from None


def _look(
    doors: Doors, status: WebhookStatus | None, cursor: str | None, of_account: str | None
) -> tuple[Page[Webhook], list[WebhookRow]]:
    store, present_ms = doors.store, now_ms()
    page = store.webhooks(cursor, ROWS, status=status, of_account=of_account)
    ids = [webhook.id for webhook in page.items]
    hour_from_ms = last_hour_from_ms(present_ms)
    hours = store.sum_tallies(ids, Span.SETTLED, hour_from_ms)
    history = store.sum_tallies(ids, Span.EVENT, present_ms - doors.settings.history_ms)
    active = store.active_replays_of(ids)
    nothing = DeliveryTally(hour_from_ms)
    rows = [
        WebhookRow(
            webhook,
            hours.get(webhook.id, nothing),
            history.get(webhook.id, nothing).missed,
            active.get(webhook.id),
        )
        for webhook in page.items
    ]
    return page, rows


def _tabs(wanted: _Wanted) -> list[Tab]:
    choices: Mapping[str, WebhookStatus | None] = {"All": None} | {
        str(status): status for status in WebhookStatus
    }
    return [
        Tab(words, _Wanted(status, wanted.account_id).url(), status is wanted.status)
        for words, status in choices.items()
    ]
