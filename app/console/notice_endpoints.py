"""The list of notice endpoints, and the registration of a new one."""

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.forms import REJECTIONS, Form, FormRejection, parse_body
from app.console.page_requests import ChangeRequest, EditorRequest, PageRequest, ViewerRequest
from app.console.urls import NOTICE_ENDPOINTS, page_url
from app.domain.account_notices import NoticeEndpoint, NoticeType
from app.domain.mail import as_endpoint_url
from app.http.dependencies import AccountId, Cursor
from app.http.notice_endpoints import NoticeEndpointRequest
from app.services.authentication import select_account
from app.services.notice_endpoints import register_notice_endpoint

ROWS: Final = 50

FIELDS: Final = ("url", "description", "eventTypes")
"""The fields of the forms. Operators who register an endpoint also have `accountId`."""

router = APIRouter(prefix=NOTICE_ENDPOINTS)


@router.get("")
async def endpoints_page(
    request: ViewerRequest, account_id: AccountId = None, cursor: Cursor = None
) -> Response:
    """List notice endpoints, latest first."""
    of_account = select_account(request.key, account_id or None)
    page = await run_in_threadpool(
        request.services.store.notice_endpoints, cursor or None, ROWS, of_account=of_account
    )
    filtered = {"accountId": account_id or None}
    older = filtered | {"cursor": page.next_cursor}
    return await request.render(
        "notice_endpoints.html",
        endpoints=page.items,
        account_id=account_id,
        older=page.next_cursor and page_url(NOTICE_ENDPOINTS, older),
        newest=page_url(NOTICE_ENDPOINTS, filtered) if cursor else None,
    )


@router.get("/new")
async def registration_page(request: EditorRequest) -> Response:
    """Show the registration form."""
    return await render_form(request, None, Form({}), ())


@router.post("", operation_id="createNoticeEndpoint")
async def register(request: ChangeRequest) -> Response:
    """Register a notice endpoint. Only this response shows its secret."""
    form = request.form
    chosen = form.all("eventTypes")
    try:
        given: dict[str, object] = {
            "url": as_endpoint_url(form["url"]),
            "description": form["description"],
            "eventTypes": chosen or None,
            "accountId": form["accountId"] or None,
        }
        registration = parse_body(NoticeEndpointRequest, given).registration()
        endpoint = await register_notice_endpoint(request.services, request.key, registration)
    except REJECTIONS as error:
        # Without a field for the account, its errors are shown above the form.
        fields = (*FIELDS, "accountId") if request.viewer.is_operator else FIELDS
        rejection = request.reject(error, fields)
        return await render_form(request, None, form, chosen, rejection)
    if endpoint.mail_address is not None:
        # Its status reason says whether a code was sent.
        return request.redirect(f"{NOTICE_ENDPOINTS}/{endpoint.id}", endpoint.id)
    request.log_change(200, endpoint.id)
    return await request.render("notice_endpoint_secret.html", endpoint=endpoint, is_new=True)


async def render_form(
    request: PageRequest,
    endpoint: NoticeEndpoint | None,
    typed: Form | dict[str, str],
    chosen: Sequence[str],
    rejection: FormRejection | None = None,
    url_before: str = "",
) -> Response:
    """Return the form for a new endpoint, or to edit one, with typed values and chosen types."""
    return await request.render_form(
        "notice_endpoint_form.html",
        rejection,
        endpoint=endpoint,
        typed={name: typed[name] for name in ("url", "description")}
        | {"accountId": "" if endpoint else typed["accountId"]},
        chosen=chosen,
        notice_types=tuple(NoticeType),
        takes_mail=request.services.mailer is not None,
        url_before=url_before,
    )
