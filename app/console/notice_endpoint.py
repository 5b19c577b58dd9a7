"""The page of a notice endpoint, and actions on it: test, enable, edit, rotate, disable, delete."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.audit import log_change
from app.console.flash_messages import flash_query
from app.console.forms import REJECTIONS, ChangeForm, FormRejection, form_rejection, parse_body
from app.console.notice_endpoints import FIELDS, render_form
from app.console.rendering import render_page
from app.console.rotation import parse_rotation, rotation_context
from app.console.sessions import EditorDependency, Viewer, ViewerDependency
from app.console.urls import NOTICE_ENDPOINTS
from app.domain.account_notices import NoticeEndpoint
from app.domain.mail import as_endpoint_url
from app.http.dependencies import ServicesDependency
from app.http.error_table import problem_of
from app.http.notice_endpoints import AddressConfirmation, NoticeEndpointChange
from app.http.problems import Problem
from app.http.request_bodies import GRACE_S, Disabling
from app.services import mail_endpoints, notice_endpoints
from app.services.errors import InvalidRequest, RateLimited, ReceiverNotVerified, RequestRefused
from app.services.services import Services
from app.webhooks.endpoint_test import EndpointTest

router = APIRouter(prefix="/notice-endpoints/{endpoint_id}")


@router.get("")
async def endpoint_page(
    endpoint_id: str, request: Request, services: ServicesDependency, viewer: ViewerDependency
) -> Response:
    """Show a notice endpoint."""
    return await _render_endpoint(request, services, viewer, endpoint_id)


@router.post("/test", operation_id="testNoticeEndpoint")
async def test(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Send a test event, and show the result, which is not stored."""
    action = "testNoticeEndpoint"
    try:
        result = await notice_endpoints.send_test_notice(services, viewer.key, endpoint_id)
    except (RateLimited, ReceiverNotVerified) as error:
        return await _render_problem(request, services, viewer, action, endpoint_id, error)
    log_change(request, viewer.key, action, endpoint_id, 200)
    return await _render_endpoint(request, services, viewer, endpoint_id, result=result)


@router.post("/enable", operation_id="enableNoticeEndpoint")
async def enable(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Verify the receiver, and enable the endpoint if that succeeds."""
    action = "enableNoticeEndpoint"
    try:
        endpoint = await notice_endpoints.enable_notice_endpoint(services, viewer.key, endpoint_id)
    except (RateLimited, ReceiverNotVerified) as error:
        return await _render_problem(request, services, viewer, action, endpoint_id, error)
    is_confirmed = endpoint.mail_address is None or endpoint.validated_ms is not None
    code = "endpoint-enable" if is_confirmed else "address-code"
    return _redirect(request, viewer, action, endpoint_id, code)


@router.post("/confirm", operation_id="confirmNoticeEndpoint")
async def confirm(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Confirm the e-mail address with the code that was sent there."""
    action = "confirmNoticeEndpoint"
    try:
        code = parse_body(AddressConfirmation, {"code": form["code"]}).code
        await mail_endpoints.confirm_address(services, viewer.key, endpoint_id, code)
    except (Problem, RateLimited, ReceiverNotVerified) as error:
        return await _render_problem(request, services, viewer, action, endpoint_id, error)
    return _redirect(request, viewer, action, endpoint_id, "address-confirm")


@router.get("/edit")
async def edit_page(
    endpoint_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Show the form for URL, description and types of notices."""
    endpoint = await _read(services, viewer, endpoint_id)
    typed = {
        "url": endpoint.mail_address or endpoint.url,
        "description": endpoint.description,
    }
    return await render_form(
        request, services, endpoint, typed, endpoint.event_types, url_before=endpoint.url
    )


@router.post("/edit", operation_id="updateNoticeEndpoint")
async def edit(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Change the URL, the description or the types of notices."""
    action = "updateNoticeEndpoint"
    endpoint = await _read(services, viewer, endpoint_id)
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
            services,
            viewer.key,
            endpoint_id,
            url=change.url,
            description=change.description,
            event_types=change.new_event_types,
        )
    except REJECTIONS as error:
        rejection = form_rejection(error, FIELDS)
        log_change(request, viewer.key, action, endpoint_id, rejection.status)
        return await render_form(request, services, endpoint, form, chosen, rejection, url_before)
    return _redirect(request, viewer, action, endpoint_id, "endpoint-change")


@router.get("/rotate")
async def rotation_page(
    endpoint_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Show the form for the grace period."""
    endpoint = await _read(services, viewer, endpoint_id)
    return await _render_rotation(request, endpoint, None, chosen=str(GRACE_S))


@router.post("/rotate", operation_id="rotateNoticeSecret")
async def rotate(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Rotate the secret of an endpoint. Only this response shows the new one."""
    action = "rotateNoticeSecret"
    endpoint = await _read(services, viewer, endpoint_id)
    secret = form["secret"]
    if secret == endpoint.previous_secret:
        return RedirectResponse(_url(endpoint_id, "webhook-rotated"), 303)
    if secret != endpoint.secret:
        try:
            rotation = parse_rotation(form)
            endpoint = await run_in_threadpool(
                notice_endpoints.rotate_notice_secret,
                services,
                viewer.key,
                endpoint_id,
                rotation.secret,
                rotation.grace_period_seconds,
            )
        except (Problem, InvalidRequest) as error:
            rejection = form_rejection(error, ("gracePeriodSeconds",))
            log_change(request, viewer.key, action, endpoint_id, rejection.status)
            chosen = form["gracePeriodSeconds"]
            return await _render_rotation(request, endpoint, rejection, chosen=chosen)
        log_change(request, viewer.key, action, endpoint_id, 200)
    return await render_page(
        request, "notice_endpoint_secret.html", endpoint=endpoint, is_new=False
    )


@router.get("/disable")
async def disable_page(
    endpoint_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Show the form for the reason."""
    endpoint = await _read(services, viewer, endpoint_id)
    return await _render_stop(request, endpoint, "disable")


@router.post("/disable", operation_id="disableNoticeEndpoint")
async def disable(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Disable an endpoint: nothing is sent until it is enabled again."""
    action, reason = "disableNoticeEndpoint", form["reason"]
    endpoint = await _read(services, viewer, endpoint_id)
    try:
        disabling = parse_body(Disabling, {"reason": reason} if reason else {})
    except Problem as problem:
        rejection = form_rejection(problem, ("reason",))
        log_change(request, viewer.key, action, endpoint_id, rejection.status)
        return await _render_stop(request, endpoint, "disable", rejection, reason)
    await run_in_threadpool(
        services.store.disable_notice_endpoint,
        endpoint_id,
        disabling.reason,
        of_account=viewer.key.account_filter,
    )
    return _redirect(request, viewer, action, endpoint_id, "endpoint-disable")


@router.get("/delete")
async def deletion_page(
    endpoint_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Ask for confirmation."""
    return await _render_stop(request, await _read(services, viewer, endpoint_id), "delete")


@router.post("/delete", operation_id="deleteNoticeEndpoint")
async def delete(
    endpoint_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Delete an endpoint, its secret and its pending notices."""
    key = viewer.key
    await run_in_threadpool(
        services.store.delete_notice_endpoint, endpoint_id, of_account=key.account_filter
    )
    log_change(request, key, "deleteNoticeEndpoint", endpoint_id, 303)
    return RedirectResponse(f"{NOTICE_ENDPOINTS}?{flash_query('endpoint-delete')}", 303)


async def _read(services: Services, viewer: Viewer, endpoint_id: str) -> NoticeEndpoint:
    return await run_in_threadpool(
        services.store.notice_endpoint, endpoint_id, of_account=viewer.key.account_filter
    )


async def _render_endpoint(
    request: Request,
    services: Services,
    viewer: Viewer,
    endpoint_id: str,
    status: int = 200,
    *,
    result: EndpointTest | None = None,
    error: str | None = None,
) -> Response:
    endpoint = await _read(services, viewer, endpoint_id)
    context: Mapping[str, Any] = {"endpoint": endpoint, "test": result, "error": error}
    return await render_page(request, "notice_endpoint.html", status, **context)


async def _render_problem(
    request: Request,
    services: Services,
    viewer: Viewer,
    action: str,
    endpoint_id: str,
    refused: RequestRefused | Problem,
) -> Response:
    """Return the endpoint's page with the error of a test or a verification."""
    problem = refused if isinstance(refused, Problem) else problem_of(refused)
    status = problem.kind.status
    log_change(request, viewer.key, action, endpoint_id, status)
    error = f"{problem.kind.title}: {problem.detail}"
    return await _render_endpoint(request, services, viewer, endpoint_id, status, error=error)


async def _render_rotation(
    request: Request, endpoint: NoticeEndpoint, rejection: FormRejection | None, *, chosen: str
) -> Response:
    return await render_page(
        request,
        "notice_endpoint_rotate.html",
        200 if rejection is None else rejection.status,
        endpoint=endpoint,
        **rotation_context(rejection, chosen),
    )


async def _render_stop(
    request: Request,
    endpoint: NoticeEndpoint,
    action: str,
    rejection: FormRejection | None = None,
    reason: str = "",
) -> Response:
    return await render_page(
        request,
        "notice_endpoint_stop.html",
        200 if rejection is None else rejection.status,
        endpoint=endpoint,
        action=action,
        rejection=rejection,
        reason=reason,
    )


def _redirect(
    request: Request, viewer: Viewer, action: str, endpoint_id: str, code: str
) -> Response:
    log_change(request, viewer.key, action, endpoint_id, 303)
    return RedirectResponse(_url(endpoint_id, code), 303)


def _url(endpoint_id: str, code: str) -> str:
    return f"{NOTICE_ENDPOINTS}/{endpoint_id}?{flash_query(code)}"
