"""The page of a notice endpoint, and actions on it: test, enable, edit, rotate, disable, delete."""

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.flash_messages import flash_query
from app.console.forms import REJECTIONS, FormRejection, parse_body
from app.console.notice_endpoints import FIELDS, render_form
from app.console.page_requests import ChangeRequest, EditorRequest, PageRequest, ViewerRequest
from app.console.rotation import rotate_with_form, rotation_context
from app.console.urls import NOTICE_ENDPOINTS
from app.domain.account_notices import NoticeEndpoint
from app.domain.mail import as_endpoint_url
from app.http.notice_endpoints import AddressConfirmation, NoticeEndpointChange
from app.http.problems import Problem
from app.http.request_bodies import GRACE_S, Disabling
from app.services import mail_endpoints, notice_endpoints
from app.services.errors import InvalidRequest, RateLimited, ReceiverNotVerified
from app.webhooks.endpoint_test import EndpointTest

router = APIRouter(prefix=NOTICE_ENDPOINTS + "/{endpoint_id}")


@router.get("")
async def endpoint_page(endpoint_id: str, request: ViewerRequest) -> Response:
    """Show a notice endpoint."""
    return await _render_endpoint(request, endpoint_id)


@router.post("/test", operation_id="testNoticeEndpoint")
async def test(endpoint_id: str, request: ChangeRequest) -> Response:
    """Send a test event, and show the result, which is not stored."""
    try:
        result = await notice_endpoints.send_test_notice(request.services, request.key, endpoint_id)
    except (RateLimited, ReceiverNotVerified) as error:
        status, words = request.log_problem(error)
        return await _render_endpoint(request, endpoint_id, status, error=words)
    request.log_change(200)
    return await _render_endpoint(request, endpoint_id, result=result)


@router.post("/enable", operation_id="enableNoticeEndpoint")
async def enable(endpoint_id: str, request: ChangeRequest) -> Response:
    """Verify the receiver, and enable the endpoint if that succeeds."""
    try:
        endpoint = await notice_endpoints.enable_notice_endpoint(
            request.services, request.key, endpoint_id
        )
    except (RateLimited, ReceiverNotVerified) as error:
        status, words = request.log_problem(error)
        return await _render_endpoint(request, endpoint_id, status, error=words)
    is_confirmed = endpoint.mail_address is None or endpoint.validated_ms is not None
    code = "endpoint-enable" if is_confirmed else "address-code"
    return request.redirect(_url(endpoint_id, code))


@router.post("/confirm", operation_id="confirmNoticeEndpoint")
async def confirm(endpoint_id: str, request: ChangeRequest) -> Response:
    """Confirm the e-mail address with the code that was sent there."""
    try:
        code = parse_body(AddressConfirmation, {"code": request.form["code"]}).code
        await mail_endpoints.confirm_address(request.services, request.key, endpoint_id, code)
    except (Problem, RateLimited, ReceiverNotVerified) as error:
        status, words = request.log_problem(error)
        return await _render_endpoint(request, endpoint_id, status, error=words)
    return request.redirect(_url(endpoint_id, "address-confirm"))


@router.get("/edit")
async def edit_page(endpoint_id: str, request: EditorRequest) -> Response:
    """Show the form for URL, description and types of notices."""
    endpoint = await _read(request, endpoint_id)
    typed = {
        "url": endpoint.mail_address or endpoint.url,
        "description": endpoint.description,
    }
    return await render_form(
        request, endpoint, typed, endpoint.event_types, url_before=endpoint.url
    )


@router.post("/edit", operation_id="updateNoticeEndpoint")
async def edit(endpoint_id: str, request: ChangeRequest) -> Response:
    """Change the URL, the description or the types of notices."""
    form = request.form
    endpoint = await _read(request, endpoint_id)
    chosen, url_before = form.all("eventTypes"), form["urlBefore"] or endpoint.url
    url = as_endpoint_url(form["url"])
    changed: dict[str, object] = {
        "description": form["description"],
        "eventTypes": chosen or None,
    }
    # An unchanged URL is left out: it must not overwrite a concurrent change.
    if url != url_before:
        changed["url"] = url
    try:
        change = parse_body(NoticeEndpointChange, changed)
        await notice_endpoints.update_notice_endpoint(
            request.services,
            request.key,
            endpoint_id,
            url=change.url,
            description=change.description,
            event_types=change.new_event_types,
        )
    except REJECTIONS as error:
        rejection = request.reject(error, FIELDS)
        return await render_form(request, endpoint, form, chosen, rejection, url_before)
    return request.redirect(_url(endpoint_id, "endpoint-change"))


@router.get("/rotate")
async def rotation_page(endpoint_id: str, request: EditorRequest) -> Response:
    """Show the form for the grace period."""
    endpoint = await _read(request, endpoint_id)
    return await _render_rotation(request, endpoint, None, chosen=str(GRACE_S))


@router.post("/rotate", operation_id="rotateNoticeSecret")
async def rotate(endpoint_id: str, request: ChangeRequest) -> Response:
    """Rotate the secret of an endpoint. Only this response shows the new one."""
    endpoint = await _read(request, endpoint_id)
    if request.form["secret"] == endpoint.previous_secret:
        return RedirectResponse(_url(endpoint_id, "webhook-rotated"), 303)
    try:
        endpoint = await rotate_with_form(request, endpoint, notice_endpoints.rotate_notice_secret)
    except (Problem, InvalidRequest) as error:
        rejection = request.reject(error, ("gracePeriodSeconds",))
        chosen = request.form["gracePeriodSeconds"]
        return await _render_rotation(request, endpoint, rejection, chosen=chosen)
    return await request.render("notice_endpoint_secret.html", endpoint=endpoint, is_new=False)


@router.get("/disable")
async def disable_page(endpoint_id: str, request: EditorRequest) -> Response:
    """Show the form for the reason."""
    return await _render_stop(request, await _read(request, endpoint_id), "disable")


@router.post("/disable", operation_id="disableNoticeEndpoint")
async def disable(endpoint_id: str, request: ChangeRequest) -> Response:
    """Disable an endpoint: nothing is sent until it is enabled again."""
    reason = request.form["reason"]
    endpoint = await _read(request, endpoint_id)
    try:
        disabling = parse_body(Disabling, {"reason": reason} if reason else {})
    except Problem as problem:
        rejection = request.reject(problem, ("reason",))
        return await _render_stop(request, endpoint, "disable", rejection, reason)
    await run_in_threadpool(
        request.services.store.disable_notice_endpoint,
        endpoint_id,
        disabling.reason,
        of_account=request.key.account_filter,
    )
    return request.redirect(_url(endpoint_id, "endpoint-disable"))


@router.get("/delete")
async def deletion_page(endpoint_id: str, request: EditorRequest) -> Response:
    """Ask for confirmation."""
    return await _render_stop(request, await _read(request, endpoint_id), "delete")


@router.post("/delete", operation_id="deleteNoticeEndpoint")
async def delete(endpoint_id: str, request: ChangeRequest) -> Response:
    """Delete an endpoint, its secret and its pending notices."""
    await run_in_threadpool(
        request.services.store.delete_notice_endpoint,
        endpoint_id,
        of_account=request.key.account_filter,
    )
    return request.redirect(f"{NOTICE_ENDPOINTS}?{flash_query('endpoint-delete')}")


async def _read(request: PageRequest, endpoint_id: str) -> NoticeEndpoint:
    return await run_in_threadpool(
        request.services.store.notice_endpoint, endpoint_id, of_account=request.key.account_filter
    )


async def _render_endpoint(
    request: PageRequest,
    endpoint_id: str,
    status: int = 200,
    *,
    result: EndpointTest | None = None,
    error: str | None = None,
) -> Response:
    endpoint = await _read(request, endpoint_id)
    return await request.render(
        "notice_endpoint.html", status, endpoint=endpoint, test=result, error=error
    )


async def _render_rotation(
    request: PageRequest, endpoint: NoticeEndpoint, rejection: FormRejection | None, *, chosen: str
) -> Response:
    return await request.render_form(
        "notice_endpoint_rotate.html", rejection, endpoint=endpoint, **rotation_context(chosen)
    )


async def _render_stop(
    request: PageRequest,
    endpoint: NoticeEndpoint,
    action: str,
    rejection: FormRejection | None = None,
    reason: str = "",
) -> Response:
    return await request.render_form(
        "notice_endpoint_stop.html", rejection, endpoint=endpoint, action=action, reason=reason
    )


def _url(endpoint_id: str, code: str) -> str:
    return f"{NOTICE_ENDPOINTS}/{endpoint_id}?{flash_query(code)}"
