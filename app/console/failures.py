"""The failed, pending or skipped deliveries of all webhooks, and a form to resend some."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.deliveries import DeliveryFilter, DeliveryTab
from app.console.delivery_parts import version_of
from app.console.flash_messages import flash_query
from app.console.forms import REJECTIONS, form_rejection, parse_body
from app.console.page_requests import ChangeRequest, PageRequest, ViewerRequest
from app.console.time_ranges import RangeName, TimeRange, parse_range, time_ranges
from app.console.urls import FAILURES, PREFIX, deliveries_url, page_url
from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.http.dependencies import AccountId, MergedCursor
from app.http.request_bodies import ResendRequest
from app.services.deliveries import resend_deliveries
from app.services.services import now_ms
from app.services.undelivered import (
    STATUSES,
    UndeliveredPage,
    list_undelivered,
)

ROWS: Final = 50

LINKS_MAX: Final = 30
"""Links to the lists of further webhooks."""

FIELDS: Final = ("status", "range", "eventType", "accountId")
"""The fields of the filter; the range is one of `time_ranges`, the others have the API's names."""

router = APIRouter(prefix=PREFIX)


@router.get("/deliveries/failures")
async def failures_page(
    request: ViewerRequest,
    range_name: RangeName = "",
    account_id: AccountId = None,
    cursor: MergedCursor = None,
) -> Response:
    """List what was not delivered in a time range, or show the errors of the filter."""
    services, query = request.services, request.http.query_params
    ranges = time_ranges(services.settings.history_days, now_ms())
    shown = parse_range(range_name, ranges)
    typed = {name: query.get(name, "").strip() for name in FIELDS}
    page, rejection = None, None
    try:
        wanted = DeliveryFilter.of_fields(
            {"status": typed["status"], "eventType": typed["eventType"]}
        )
        selection = replace(
            wanted.selection,
            status=wanted.status or DeliveryStatus.FAILED,
            from_ms=shown.from_ms,
        )
        page = await list_undelivered(
            services,
            request.key,
            selection,
            account_id=account_id or None,
            cursor=cursor or None,
            limit=ROWS,
        )
    except REJECTIONS as error:
        rejection = form_rejection(error, FIELDS)
    following = None if page is None else page.next_cursor
    return await request.render_form(
        "failures.html",
        rejection,
        here=FAILURES,
        typed=typed,
        account_id=typed["accountId"],
        words=typed["status"] or str(DeliveryStatus.FAILED),
        statuses=_status_tabs(typed),
        ranges=_range_tabs(typed, ranges, shown),
        page=page,
        webhooks={} if page is None else _webhooks_of(page),
        omitted=[] if page is None else await _omitted_links(request, page, typed),
        resending=await run_in_threadpool(_pending_resends, request, page),
        version_of=version_of,
        may_resend=request.viewer.may_change,
        # Each row has it: without the cursor, which is long.
        suffix=page_url("", {"failures": page_url("", typed)[1:] or "1"}),
        query=page_url("", typed | {"cursor": cursor or ""})[1:],
        older=following and page_url(FAILURES, typed | {"cursor": following}),
        newest=page_url(FAILURES, typed) if cursor else None,
    )


@router.post("/deliveries/failures/resend", operation_id="resendDeliveries")
async def resend_selected(request: ChangeRequest) -> Response:
    """Send the selected deliveries once more, and return to the list."""
    given = dict(parse_qsl(request.form["back"]))
    url = page_url(FAILURES, {name: given.get(name) for name in (*FIELDS, "cursor")})
    joint = "&" if "?" in url else "?"
    selected = request.form.all("id")
    if not selected:
        return RedirectResponse(f"{url}{joint}{flash_query('no-deliveries')}", 303)
    wanted = parse_body(ResendRequest, {"deliveryIds": selected}).delivery_ids or []
    resends = await resend_deliveries(request.services, request.key, wanted)
    return request.redirect(f"{url}{joint}{flash_query('resend', len(resends))}")


def _webhooks_of(page: UndeliveredPage) -> dict[str, object]:
    """The webhook of each delivery, by the id of the delivery."""
    by_id = {each.id: each for each in page.webhooks}
    return {each.id: by_id[each.webhook_id] for each in page.items}


def _pending_resends(request: PageRequest, page: UndeliveredPage | None) -> set[DeliveryPlace]:
    listed = () if page is None else {each.webhook_id for each in page.items}
    return {place for each in listed for place in request.services.store.pending_resends(each)}


async def _omitted_links(
    request: PageRequest, page: UndeliveredPage, typed: Mapping[str, str]
) -> list[tuple[str, str]]:
    """The names of up to `LINKS_MAX` further webhooks, and the URLs of their lists."""
    ids = page.omitted_webhook_ids[:LINKS_MAX]
    found = await run_in_threadpool(request.services.store.find_webhooks, ids)
    fields = {"status": typed["status"] or str(DeliveryStatus.FAILED)}
    fields["eventType"] = typed["eventType"]
    return [
        (found[each].description or found[each].url, deliveries_url(each, fields))
        for each in ids
        if each in found
    ]


def _status_tabs(typed: Mapping[str, str]) -> list[DeliveryTab]:
    current = typed["status"] or str(DeliveryStatus.FAILED)
    return [
        DeliveryTab(
            each.capitalize(), page_url(FAILURES, {**typed, "status": each}), current == each
        )
        for each in map(str, STATUSES)
    ]


def _range_tabs(
    typed: Mapping[str, str], ranges: tuple[TimeRange, ...], shown: TimeRange
) -> list[DeliveryTab]:
    return [
        DeliveryTab(each.title, page_url(FAILURES, {**typed, "range": each.name}), each is shown)
        for each in ranges
    ]
