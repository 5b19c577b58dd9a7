"""Actions on a webhook: test, enable, edit, disable, rotate the secret, delete."""

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.audit import log_change
from app.console.flash_messages import flash_query
from app.console.forms import (
    REJECTIONS,
    ChangeForm,
    FormRejection,
    form_rejection,
    parse_body,
)
from app.console.rendering import render_page
from app.console.rotation import parse_rotation, rotation_context
from app.console.sessions import EditorDependency, Viewer, ViewerDependency
from app.console.urls import WEBHOOKS
from app.console.webhook import render_webhook
from app.console.webhooks import read_webhook
from app.domain.endpoint_options import NO_OPTIONS
from app.domain.model import Webhook
from app.http.dependencies import ServicesDependency
from app.http.error_table import problem_of
from app.http.problems import Problem
from app.http.request_bodies import GRACE_S, Disabling, WebhookChange
from app.services import webhooks
from app.services.errors import InvalidRequest, RateLimited, ReceiverNotVerified, RequestRefused
from app.services.services import Services

EDIT_FIELDS: Final = ("url", "description", "autoRecovery", "ordering")

_CHOICES: Final = {True: "true", False: "false"}

router = APIRouter(prefix="/webhooks/{webhook_id}")


@router.post("/test", operation_id="testWebhook")
async def test(
    webhook_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Send a test event, and show the result, which is not stored."""
    try:
        result = await webhooks.send_test(services, viewer.key, webhook_id)
    except RateLimited as error:
        return await _render_problem(request, services, viewer, "testWebhook", webhook_id, error)
    log_change(request, viewer.key, "testWebhook", webhook_id, 200)
    return await render_webhook(request, services, viewer, webhook_id, test=result)


@router.post("/enable", operation_id="enableWebhook")
async def enable(
    webhook_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Verify the receiver, and enable the webhook if that succeeds."""
    try:
        await webhooks.enable_webhook(services, viewer.key, webhook_id)
    except (RateLimited, ReceiverNotVerified) as error:
        return await _render_problem(request, services, viewer, "enableWebhook", webhook_id, error)
    return _redirect_to_webhook(request, viewer, "enableWebhook", webhook_id, "webhook-enable")


@router.get("/edit")
async def edit_page(
    webhook_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Show the form for URL, description, automatic recovery and ordering."""
    webhook = await read_webhook(services, viewer, webhook_id)
    typed = {
        "url": webhook.url,
        "description": webhook.description,
        "autoRecovery": _CHOICES[webhook.auto_recovery],
        "ordering": str((webhook.options or NO_OPTIONS).ordering),
    }
    return await _render_form(
        request, "webhook_edit.html", webhook, typed=typed, url_before=webhook.url
    )


@router.post("/edit", operation_id="updateWebhook")
async def edit(
    webhook_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Change what the form has of a webhook."""
    webhook = await read_webhook(services, viewer, webhook_id)
    typed = {name: form[name] for name in EDIT_FIELDS}
    changed: dict[str, object] = dict(typed)
    url_before = form["urlBefore"] or webhook.url
    ordering_before = (webhook.options or NO_OPTIONS).ordering
    # A form without a choice leaves it unchanged.
    chosen = changed.pop("autoRecovery")
    if chosen:
        changed["autoRecovery"] = chosen == _CHOICES[True]
    if typed["ordering"] in ("", ordering_before):
        del changed["ordering"]
    if typed["url"] == url_before:
        # An unchanged URL is left out: it needs no verification, and must not overwrite a
        # concurrent change.
        del changed["url"]
    try:
        change = parse_body(WebhookChange, changed)
        await webhooks.update_webhook(
            services,
            viewer.key,
            webhook_id,
            url=change.url,
            description=change.description,
            auto_recovery=change.auto_recovery,
            change_options=change.changed if change.changes_options else None,
        )
    except REJECTIONS as error:
        rejection = form_rejection(error, EDIT_FIELDS)
        log_change(request, viewer.key, "updateWebhook", webhook_id, rejection.status)
        return await _render_form(
            request, "webhook_edit.html", webhook, rejection, typed=typed, url_before=url_before
        )
    return _redirect_to_webhook(request, viewer, "updateWebhook", webhook_id, "webhook-change")


@router.get("/disable")
async def disable_page(
    webhook_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Show the form for the reason."""
    webhook = await read_webhook(services, viewer, webhook_id)
    return await _render_form(request, "webhook_disable.html", webhook, typed={"reason": ""})


@router.post("/disable", operation_id="disableWebhook")
async def disable(
    webhook_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Disable a webhook: nothing is sent until it is enabled again."""
    webhook = await read_webhook(services, viewer, webhook_id)
    reason = form["reason"]
    try:
        disabling = parse_body(Disabling, {"reason": reason} if reason else {})
    except Problem as problem:
        rejection = form_rejection(problem, ("reason",))
        log_change(request, viewer.key, "disableWebhook", webhook_id, rejection.status)
        typed = {"reason": reason}
        return await _render_form(request, "webhook_disable.html", webhook, rejection, typed=typed)
    await run_in_threadpool(
        services.store.disable_webhook,
        webhook_id,
        disabling.reason,
        of_account=viewer.key.account_filter,
    )
    return _redirect_to_webhook(request, viewer, "disableWebhook", webhook_id, "webhook-disable")


@router.get("/rotate")
async def rotation_page(
    webhook_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Show the form for the grace period."""
    webhook = await read_webhook(services, viewer, webhook_id)
    return await _render_rotation(request, webhook, None, chosen=str(GRACE_S))


@router.post("/rotate", operation_id="rotateSecret")
async def rotate(
    webhook_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Rotate the secret of a webhook. Only this response shows the new one."""
    webhook = await read_webhook(services, viewer, webhook_id)
    secret = form["secret"]
    if secret == webhook.previous_secret:
        return RedirectResponse(f"{WEBHOOKS}/{webhook_id}?{flash_query('webhook-rotated')}", 303)
    if secret != webhook.secret:
        try:
            rotation = parse_rotation(form)
            webhook = await run_in_threadpool(
                webhooks.rotate_secret,
                services,
                viewer.key,
                webhook_id,
                rotation.secret,
                rotation.grace_period_seconds,
            )
        except (Problem, InvalidRequest) as error:
            rejection = form_rejection(error, ("gracePeriodSeconds",))
            log_change(request, viewer.key, "rotateSecret", webhook_id, rejection.status)
            chosen = form["gracePeriodSeconds"]
            return await _render_rotation(request, webhook, rejection, chosen=chosen)
        log_change(request, viewer.key, "rotateSecret", webhook_id, 200)
    return await render_page(request, "webhook_secret.html", webhook=webhook, is_new=False)


@router.get("/delete")
async def deletion_page(
    webhook_id: str, request: Request, services: ServicesDependency, viewer: EditorDependency
) -> Response:
    """Ask for confirmation, with the active replay that will be cancelled."""
    webhook = await read_webhook(services, viewer, webhook_id)
    active = await run_in_threadpool(services.store.active_replays_of, [webhook.id])
    return await render_page(
        request, "webhook_delete.html", webhook=webhook, active=active.get(webhook.id)
    )


@router.post("/delete", operation_id="deleteWebhook")
async def delete(
    webhook_id: str,
    request: Request,
    services: ServicesDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Delete a webhook and its secret, and cancel its active replay."""
    key = viewer.key
    await run_in_threadpool(
        services.store.delete_webhook, webhook_id, of_account=key.account_filter, actor=key.actor
    )
    log_change(request, key, "deleteWebhook", webhook_id, 303)
    return RedirectResponse(f"{WEBHOOKS}?{flash_query('webhook-delete')}", 303)


async def _render_form(
    request: Request,
    template: str,
    webhook: Webhook,
    rejection: FormRejection | None = None,
    **context: Any,
) -> Response:
    status = 200 if rejection is None else rejection.status
    return await render_page(
        request, template, status, webhook=webhook, rejection=rejection, **context
    )


async def _render_rotation(
    request: Request, webhook: Webhook, rejection: FormRejection | None, *, chosen: str
) -> Response:
    context = rotation_context(rejection, chosen)
    return await _render_form(request, "webhook_rotate.html", webhook, **context)


async def _render_problem(
    request: Request,
    services: Services,
    viewer: Viewer,
    action: str,
    webhook_id: str,
    refused: RequestRefused,
) -> Response:
    """Return the webhook's page with the error of a test or a verification."""
    problem = problem_of(refused)
    status = problem.kind.status
    log_change(request, viewer.key, action, webhook_id, status)
    error = f"{problem.kind.title}: {problem.detail}"
    return await render_webhook(request, services, viewer, webhook_id, status, error=error)


def _redirect_to_webhook(
    request: Request, viewer: Viewer, action: str, webhook_id: str, code: str
) -> Response:
    log_change(request, viewer.key, action, webhook_id, 303)
    return RedirectResponse(f"{WEBHOOKS}/{webhook_id}?{flash_query(code)}", 303)
