"""The first page: choose the webhook whose deliveries to show, or find an event by its id."""

import re
from typing import Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.forms import form_rejection
from app.console.page_requests import PageRequest, ViewerRequest
from app.console.urls import DELIVERIES, PREFIX, deliveries_url, event_url, page_url
from app.console.webhooks import read_rows
from app.domain.deliveries import ID_PREFIX
from app.http.dependencies import Cursor
from app.http.problems import INVALID_REQUEST, Problem
from app.http.request_bodies import EVENT_ID
from app.services.errors import FieldError
from app.store.errors import WebhookNotFound

_CHARACTERS_MAX: Final = 256

router = APIRouter(prefix=PREFIX)


@router.get("/deliveries")
async def search_page(request: ViewerRequest, cursor: Cursor = None) -> Response:
    """List webhooks, latest first; with an id in the query, redirect to what it names."""
    typed = request.http.query_params.get("id", "").strip()
    rejection = None
    if typed:
        try:
            return RedirectResponse(await run_in_threadpool(_find, request, typed), 303)
        except Problem as problem:
            rejection = form_rejection(problem, ("id",))
    page, rows = await run_in_threadpool(
        read_rows, request.services, None, cursor or None, request.key.account_filter
    )
    return await request.render_form(
        "delivery_search.html",
        rejection,
        typed=typed,
        rows=rows,
        older=page.next_cursor and page_url(DELIVERIES, {"cursor": page.next_cursor}),
        newest=DELIVERIES if cursor else None,
    )


def _find(request: PageRequest, typed: str) -> str:
    """Return the URL of a delivery, of the deliveries of a webhook, or else of an event.

    Raises:
        Problem: no event can have this id.
    """
    if typed.startswith(ID_PREFIX):
        return f"{DELIVERIES}/{quote(typed, safe='')}"
    try:
        webhook = request.services.store.webhook(typed, of_account=request.key.account_filter)
    except WebhookNotFound:
        if not re.fullmatch(EVENT_ID, typed):
            error = FieldError("id", typed[:_CHARACTERS_MAX], "the id of an event")
            raise Problem.of_fields(INVALID_REQUEST, [error]) from None
        return event_url(typed)
    return deliveries_url(webhook.id, {})
