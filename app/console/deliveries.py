"""The deliveries of a webhook: those that match a filter, page by page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qsl

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.delivery_parts import version_of
from app.console.flash_messages import flash_query
from app.console.formats import add_utc
from app.console.forms import REJECTIONS, Form, form_rejection, parse_body
from app.console.live_settled import count_settled
from app.console.page_requests import ChangeRequest, ViewerRequest
from app.console.urls import PREFIX, deliveries_url, jobs_url, page_url
from app.console.webhooks import read_webhook
from app.domain.deliveries import DeliveryStatus
from app.domain.model import ReplayFilter, WebhookStatus
from app.http.dependencies import Cursor
from app.http.request_bodies import EventId, EventTypeGlob, RequestBody, ResendRequest, Time
from app.services.deliveries import DeliverySelection, list_deliveries, resend_deliveries
from app.services.services import now_ms

ROWS: Final = 50

TIMES: Final = ("from", "to")
FIELDS: Final = ("status", "eventId", "eventType", *TIMES)
"""The fields of the filter, by the API's names."""

router = APIRouter(prefix=PREFIX)


class DeliveryFilter(RequestBody):
    """The filter of a list of deliveries."""

    status: DeliveryStatus | None = None
    event_id: EventId | None = None
    event_type: EventTypeGlob | None = None
    from_ms: Time | None = Field(None, alias="from")
    to_ms: Time | None = Field(None, alias="to")

    @classmethod
    def of_fields(cls, typed: Mapping[str, str]) -> Self:
        """Return the filter of a form; empty fields select everything.

        Raises:
            Problem: a value is invalid.
        """
        given = {name: text for name, text in typed.items() if text}
        given |= {name: add_utc(given[name]) for name in TIMES if name in given}
        return parse_body(cls, given)

    @property
    def selection(self) -> DeliverySelection:
        """Its selection, which leaves out the event id."""
        return DeliverySelection(self.status, self.event_type, self.from_ms, self.to_ms)


@dataclass(frozen=True, slots=True)
class DeliveryTab:
    """A link to the deliveries with one status, or all."""

    words: str
    href: str
    is_current: bool


@router.get("/webhooks/{webhook_id}/deliveries")
async def deliveries_page(
    webhook_id: str, request: ViewerRequest, cursor: Cursor = None
) -> Response:
    """List the deliveries of a webhook that match the filter in the query, or show its errors."""
    services, query = request.services, request.http.query_params
    webhook = await read_webhook(request, webhook_id)
    typed = {name: query.get(name, "").strip() for name in FIELDS}
    # Read before the deliveries: a resend that ends meanwhile is updated live.
    resending = await run_in_threadpool(services.store.pending_resends, webhook.id)
    present_ms = now_ms()
    settled = await run_in_threadpool(count_settled, services, webhook.id, present_ms)
    page, rejection = None, None
    try:
        wanted = DeliveryFilter.of_fields(typed)
        page = await list_deliveries(
            services,
            request.key,
            webhook_id,
            wanted.selection,
            event_id=wanted.event_id,
            cursor=cursor or None,
            limit=ROWS,
        )
    except REJECTIONS as error:
        rejection = form_rejection(error, FIELDS)
    newer = None
    if page is not None and not cursor and not any(typed.values()):
        newer = settled.loaded_with(page, present_ms)
    following = None if page is None else page.next_cursor
    shown = typed | {"cursor": cursor or ""}
    return await request.render_form(
        "deliveries.html",
        rejection,
        webhook=webhook,
        here=deliveries_url(webhook.id, {}),
        typed=typed,
        tabs=_tabs(webhook.id, typed),
        page=page,
        version_of=version_of,
        newer=newer,
        resending=resending,
        may_resend=request.viewer.may_change and webhook.status is WebhookStatus.ENABLED,
        query=request.http.url.query,
        suffix=page_url("", {"list": page_url("", shown)[1:]}),
        is_filtered=any(typed.values()),
        jobs_url=jobs_url(ReplayFilter(webhook_id=webhook.id)),
        older=following and deliveries_url(webhook.id, typed | {"cursor": following}),
        newest=deliveries_url(webhook.id, typed) if cursor else None,
    )


@router.post("/webhooks/{webhook_id}/deliveries/resend", operation_id="resendDeliveries")
async def resend_selected(webhook_id: str, request: ChangeRequest) -> Response:
    """Send the selected deliveries once more, all or none, and return to the list."""
    selected = request.form.all("id")
    if not selected:
        url = _list_url(webhook_id, request.form, flash_query("no-deliveries"))
        return RedirectResponse(url, 303)
    wanted = parse_body(ResendRequest, {"deliveryIds": selected}).delivery_ids or []
    resends = await resend_deliveries(request.services, request.key, wanted, webhook_id)
    return request.redirect(
        _list_url(webhook_id, request.form, flash_query("resend", len(resends)))
    )


def _list_url(webhook_id: str, form: Form, flash: str) -> str:
    """Return the URL of the page of the list that the form was on, with a message."""
    given = dict(parse_qsl(form["back"]))
    url = deliveries_url(webhook_id, {name: given.get(name) for name in (*FIELDS, "cursor")})
    return f"{url}{'&' if '?' in url else '?'}{flash}"


def _tabs(webhook_id: str, typed: Mapping[str, str]) -> list[DeliveryTab]:
    choices = {"all": "", **{str(status): str(status) for status in DeliveryStatus}}
    return [
        DeliveryTab(
            words.capitalize(),
            deliveries_url(webhook_id, {**typed, "status": status}),
            typed["status"] == status,
        )
        for words, status in choices.items()
    ]
