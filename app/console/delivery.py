"""The page of a delivery: the event as it was published, its status and its attempts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console import deliveries, failures
from app.console.delivery_parts import delivery_parts, version_of
from app.console.flash_messages import flash_query
from app.console.messages import HEX_BYTES_MAX, hex_lines
from app.console.page_requests import ChangeRequest, ViewerRequest
from app.console.urls import (
    DELIVERIES,
    FAILURES,
    PREFIX,
    deliveries_url,
    event_url,
    jobs_url,
    page_url,
)
from app.domain.model import ReplayFilter, WebhookStatus
from app.log.topics import DELIVERY_LOG
from app.services.deliveries import get_delivery, resend_deliveries

PAYLOAD_CHARACTERS_MAX: Final = 32_768
"""Characters of a payload on the page; the download has all.

The largest example that GitHub publishes has 27,000.
"""

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class ShownPayload:
    """The beginning of a payload as text, or as a hex dump if it is not UTF-8 or has a NUL."""

    text: str
    is_text: bool
    is_cut: bool
    size: int


@router.get("/deliveries/{delivery_id}")
async def delivery_page(delivery_id: str, request: ViewerRequest) -> Response:
    """Show a delivery."""
    viewer = request.viewer
    found = await get_delivery(request.services, viewer.key, delivery_id)
    delivery = found.summary
    webhook = await run_in_threadpool(request.services.store.webhook, delivery.webhook_id)
    place = delivery.place
    return await request.render(
        "delivery.html",
        delivery=delivery,
        webhook=webhook,
        version=version_of(delivery, is_resending=found.pending_resends > 0),
        may_resend=viewer.may_change and webhook.status is WebhookStatus.ENABLED,
        parts=delivery_parts(request.templates, found, is_operator=viewer.is_operator),
        headers=found.header_texts(with_internal=viewer.is_operator),
        payload=shown_payload(found.body),
        deliveries_url=deliveries_url(webhook.id, {}),
        list_url=_list_url(webhook.id, request.http.query_params),
        resend_url=page_url(
            f"{DELIVERIES}/{delivery.id}/resend", _list_fields(request.http.query_params)
        ),
        event_url=event_url(delivery.event_id),
        jobs_url=jobs_url(ReplayFilter(webhook_id=webhook.id)),
        message_url=f"/console/log/topics/{DELIVERY_LOG}/messages?from=offset"
        f"&partition={place.partition}&offset={place.offset}",
    )


def _list_fields(query: Mapping[str, str]) -> dict[str, str | None]:
    """The fields of a query that name the list that linked here."""
    return {name: query.get(name) for name in ("failures", "list")}


def _list_url(webhook_id: str, query: Mapping[str, str]) -> str | None:
    """The URL of the list that linked here, with its filter; None if it has none."""
    if "failures" in query:
        given = dict(parse_qsl(query["failures"]))
        return page_url(FAILURES, {name: given.get(name) for name in failures.FIELDS})
    given = dict(parse_qsl(query.get("list", "")))
    names = (*deliveries.FIELDS, "cursor")
    fields: dict[str, str | None] = {name: given[name] for name in names if name in given}
    return deliveries_url(webhook_id, fields) if fields else None


@router.post("/deliveries/{delivery_id}/resend", operation_id="resendDelivery")
async def resend(delivery_id: str, request: ChangeRequest) -> Response:
    """Send a delivery once more; its page shows the attempt."""
    await resend_deliveries(request.services, request.key, [delivery_id])
    fields = _list_fields(request.http.query_params) | dict(parse_qsl(flash_query("resend")))
    return request.redirect(page_url(f"{DELIVERIES}/{delivery_id}", fields))


@router.get("/deliveries/{delivery_id}/payload")
async def payload_file(delivery_id: str, request: ViewerRequest) -> Response:
    """Download the payload of a delivery, byte for byte."""
    found = await get_delivery(request.services, request.key, delivery_id)
    # The bytes are those of a stranger: a browser must not render them.
    name = quote(found.summary.id)
    headers = {"content-disposition": f'attachment; filename="{name}.json"'}
    return Response(found.body, headers=headers, media_type="application/octet-stream")


def shown_payload(body: bytes) -> ShownPayload:
    """Return what the page shows of a payload."""
    # HTML has no representation of NUL.
    text = None if b"\0" in body else _decode(body)
    if text is None:
        is_cut = len(body) > HEX_BYTES_MAX
        return ShownPayload(hex_lines(body), is_text=False, is_cut=is_cut, size=len(body))
    shown = text[:PAYLOAD_CHARACTERS_MAX]
    return ShownPayload(shown, is_text=True, is_cut=len(shown) < len(text), size=len(body))


def _decode(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
