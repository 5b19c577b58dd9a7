"""Actions on a webhook: test, enable, edit, disable, rotate the secret, delete."""

from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.flash_messages import flash_query
from app.console.forms import REJECTIONS, FormRejection, parse_body
from app.console.page_requests import ChangeRequest, EditorRequest, PageRequest
from app.console.rotation import rotate_with_form, rotation_context
from app.console.urls import WEBHOOKS
from app.console.webhook import render_webhook
from app.console.webhooks import read_webhook
from app.domain.endpoint_options import NO_OPTIONS
from app.domain.model import Webhook
from app.http.problems import Problem
from app.http.request_bodies import GRACE_S, Disabling, WebhookChange
from app.services import webhooks
from app.services.errors import InvalidRequest, RateLimited, ReceiverNotVerified

EDIT_FIELDS: Final = ("url", "description", "autoRecovery", "ordering")

_CHOICES: Final = {True: "true", False: "false"}

router = APIRouter(prefix=WEBHOOKS + "/{webhook_id}")


@router.post("/test", operation_id="testWebhook")
async def test(webhook_id: str, request: ChangeRequest) -> Response:
    """Send a test event, and show the result, which is not stored."""
    try:
        result = await webhooks.send_test(request.services, request.key, webhook_id)
    except RateLimited as error:
        status, words = request.log_problem(error)
        return await render_webhook(request, webhook_id, status, error=words)
    request.log_change(200)
    return await render_webhook(request, webhook_id, test=result)


@router.post("/enable", operation_id="enableWebhook")
async def enable(webhook_id: str, request: ChangeRequest) -> Response:
    """Verify the receiver, and enable the webhook if that succeeds."""
    try:
        await webhooks.enable_webhook(request.services, request.key, webhook_id)
    except (RateLimited, ReceiverNotVerified) as error:
        status, words = request.log_problem(error)
        return await render_webhook(request, webhook_id, status, error=words)
    return request.redirect(_url(webhook_id, "webhook-enable"))


@router.get("/edit")
async def edit_page(webhook_id: str, request: EditorRequest) -> Response:
    """Show the form for URL, description, automatic recovery and ordering."""
    webhook = await read_webhook(request, webhook_id)
    typed = {
        "url": webhook.url,
        "description": webhook.description,
        "autoRecovery": _CHOICES[webhook.auto_recovery],
        "ordering": str((webhook.options or NO_OPTIONS).ordering),
    }
    return await request.render_form(
        "webhook_edit.html", None, webhook=webhook, typed=typed, url_before=webhook.url
    )


@router.post("/edit", operation_id="updateWebhook")
async def edit(webhook_id: str, request: ChangeRequest) -> Response:
    """Change what the form has of a webhook."""
    webhook = await read_webhook(request, webhook_id)
    typed = {name: request.form[name] for name in EDIT_FIELDS}
    changed: dict[str, object] = dict(typed)
    url_before = request.form["urlBefore"] or webhook.url
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
            request.services,
            request.key,
            webhook_id,
            url=change.url,
            description=change.description,
            auto_recovery=change.auto_recovery,
            change_options=change.changed if change.changes_options else None,
        )
    except REJECTIONS as error:
        rejection = request.reject(error, EDIT_FIELDS)
        return await request.render_form(
            "webhook_edit.html", rejection, webhook=webhook, typed=typed, url_before=url_before
        )
    return request.redirect(_url(webhook_id, "webhook-change"))


@router.get("/disable")
async def disable_page(webhook_id: str, request: EditorRequest) -> Response:
    """Show the form for the reason."""
    webhook = await read_webhook(request, webhook_id)
    return await _render_disabling(request, webhook)


@router.post("/disable", operation_id="disableWebhook")
async def disable(webhook_id: str, request: ChangeRequest) -> Response:
    """Disable a webhook: nothing is sent until it is enabled again."""
    webhook = await read_webhook(request, webhook_id)
    reason = request.form["reason"]
    try:
        disabling = parse_body(Disabling, {"reason": reason} if reason else {})
    except Problem as problem:
        rejection = request.reject(problem, ("reason",))
        return await _render_disabling(request, webhook, rejection, reason)
    await run_in_threadpool(
        request.services.store.disable_webhook,
        webhook_id,
        disabling.reason,
        of_account=request.key.account_filter,
    )
    return request.redirect(_url(webhook_id, "webhook-disable"))


@router.get("/rotate")
async def rotation_page(webhook_id: str, request: EditorRequest) -> Response:
    """Show the form for the grace period."""
    webhook = await read_webhook(request, webhook_id)
    return await _render_rotation(request, webhook, None, chosen=str(GRACE_S))


@router.post("/rotate", operation_id="rotateSecret")
async def rotate(webhook_id: str, request: ChangeRequest) -> Response:
    """Rotate the secret of a webhook. Only this response shows the new one."""
    webhook = await read_webhook(request, webhook_id)
    if request.form["secret"] == webhook.previous_secret:
        return RedirectResponse(_url(webhook_id, "webhook-rotated"), 303)
    try:
        webhook = await rotate_with_form(request, webhook, webhooks.rotate_secret)
    except (Problem, InvalidRequest) as error:
        rejection = request.reject(error, ("gracePeriodSeconds",))
        chosen = request.form["gracePeriodSeconds"]
        return await _render_rotation(request, webhook, rejection, chosen=chosen)
    return await request.render("webhook_secret.html", webhook=webhook, is_new=False)


@router.get("/delete")
async def deletion_page(webhook_id: str, request: EditorRequest) -> Response:
    """Ask for confirmation, with the active replay that will be cancelled."""
    webhook = await read_webhook(request, webhook_id)
    active = await run_in_threadpool(request.services.store.active_replays_of, [webhook.id])
    return await request.render(
        "webhook_delete.html", webhook=webhook, active=active.get(webhook.id)
    )


@router.post("/delete", operation_id="deleteWebhook")
async def delete(webhook_id: str, request: ChangeRequest) -> Response:
    """Delete a webhook and its secret, and cancel its active replay."""
    key = request.key
    await run_in_threadpool(
        request.services.store.delete_webhook,
        webhook_id,
        of_account=key.account_filter,
        actor=key.actor,
    )
    return request.redirect(f"{WEBHOOKS}?{flash_query('webhook-delete')}")


async def _render_disabling(
    request: PageRequest,
    webhook: Webhook,
    rejection: FormRejection | None = None,
    reason: str = "",
) -> Response:
    return await request.render_form(
        "webhook_disable.html", rejection, webhook=webhook, typed={"reason": reason}
    )


async def _render_rotation(
    request: PageRequest, webhook: Webhook, rejection: FormRejection | None, *, chosen: str
) -> Response:
    return await request.render_form(
        "webhook_rotate.html", rejection, webhook=webhook, **rotation_context(chosen)
    )


def _url(webhook_id: str, code: str) -> str:
    return f"{WEBHOOKS}/{webhook_id}?{flash_query(code)}"
