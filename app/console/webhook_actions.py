"""What one may do to a webhook, each the API's own operation: as forms of its page."""

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.api import webhook_changes
from app.api.doors import Doors, DoorsDependency
from app.api.models.webhooks import GRACE_S, Disabling, Rotation, WebhookChange
from app.api.problems import NOT_VALIDATED, RATE_LIMITED, Problem
from app.api.test_delivery import deliver_test
from app.console.audit import note_change
from app.console.forms import ChangeForm
from app.console.gate import ChangerDependency, Viewer, ViewerDependency
from app.console.notices import did
from app.console.refused_forms import REFUSALS, Refusal, read_body, refusal_of
from app.console.rendering import rendered
from app.console.webhook import show
from app.console.webhooks import WEBHOOKS
from app.domain.model import Webhook
from app.webhooks.signing import new_secret

CHANGE_FIELDS: Final = ("url", "description")

GRACES: Final = {0: "none: at once", 3_600: "1 hour", GRACE_S: "1 day", 7 * GRACE_S: "7 days"}
"""The grace periods that are offered, in seconds."""

_DIGITS_MAX: Final = 9

router = APIRouter(prefix="/webhooks/{webhook_id}")


@router.post("/test", operation_id="testWebhook")
async def test(
    webhook_id: str,
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Send a test to the receiver, and show what came of it: it is kept nowhere else."""
    try:
        trial = await deliver_test(doors, viewer.key, webhook_id)
    except Problem as problem:
        return await _not_now(request, doors, viewer, "testWebhook", webhook_id, problem)
    note_change(request, viewer.key, "testWebhook", webhook_id, 200)
    return await show(request, doors, viewer, webhook_id, trial=trial)


@router.post("/enable", operation_id="enableWebhook")
async def enable(
    webhook_id: str,
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Ask the receiver for its proof, and enable the webhook if it gives it."""
    try:
        await webhook_changes.enable(doors, viewer.key, webhook_id)
    except Problem as problem:
        return await _not_now(request, doors, viewer, "enableWebhook", webhook_id, problem)
    return _done(request, viewer, "enableWebhook", webhook_id, "webhook-enable")


@router.get("/edit")
async def edit_page(
    webhook_id: str, request: Request, doors: DoorsDependency, viewer: ChangerDependency
) -> Response:
    """Ask what is to change."""
    webhook = await _webhook(doors, viewer, webhook_id)
    typed = {"url": webhook.url, "description": webhook.description}
    return await _asked(request, "webhook_edit.html", webhook, typed=typed, url_before=webhook.url)


@router.post("/edit", operation_id="updateWebhook")
async def edit(
    webhook_id: str,
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Change the URL or the description of a webhook."""
    webhook = await _webhook(doors, viewer, webhook_id)
    typed = {name: form[name] for name in CHANGE_FIELDS}
    asked, url_before = dict(typed), form["urlBefore"] or webhook.url
    if typed["url"] == url_before:
        # Left out, it is nobody's turn to prove anything, and one that a colleague gave stays.
        del asked["url"]
    try:
        change = read_body(WebhookChange, asked)
        await webhook_changes.change(doors, viewer.key, webhook_id, change)
    except REFUSALS as error:
        refusal = refusal_of(error, CHANGE_FIELDS)
        note_change(request, viewer.key, "updateWebhook", webhook_id, refusal.status)
        return await _asked(
            request, "webhook_edit.html", webhook, refusal, typed=typed, url_before=url_before
        )
    return _done(request, viewer, "updateWebhook", webhook_id, "webhook-change")


@router.get("/disable")
async def disable_page(
    webhook_id: str, request: Request, doors: DoorsDependency, viewer: ChangerDependency
) -> Response:
    """Ask why nothing is to be sent any more."""
    webhook = await _webhook(doors, viewer, webhook_id)
    return await _asked(request, "webhook_disable.html", webhook, typed={"reason": ""})


@router.post("/disable", operation_id="disableWebhook")
async def disable(
    webhook_id: str,
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Send nothing more to a webhook."""
    webhook = await _webhook(doors, viewer, webhook_id)
    reason = form["reason"]
    try:
        disabling = read_body(Disabling, {"reason": reason} if reason else {})
    except Problem as problem:
        refusal = refusal_of(problem, ("reason",))
        note_change(request, viewer.key, "disableWebhook", webhook_id, refusal.status)
        typed = {"reason": reason}
        return await _asked(request, "webhook_disable.html", webhook, refusal, typed=typed)
    await run_in_threadpool(
        doors.store.disable_webhook, webhook_id, disabling.reason, of_account=viewer.key.sees
    )
    return _done(request, viewer, "disableWebhook", webhook_id, "webhook-disable")


@router.get("/rotate")
async def rotation_page(
    webhook_id: str, request: Request, doors: DoorsDependency, viewer: ChangerDependency
) -> Response:
    """Ask for how long the secret before is to sign as well.

    The form holds the secret to be. So a button that is pressed twice makes one secret, and the
    answer that is looked at shows it: two rotations would let the secret that receivers know sign
    nothing any more, and show the new one to nobody.
    """
    webhook = await _webhook(doors, viewer, webhook_id)
    return await _asked_rotation(request, webhook, None, chosen=str(GRACE_S))


@router.post("/rotate", operation_id="rotateSecret")
async def rotate(
    webhook_id: str,
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    form: ChangeForm,
) -> Response:
    """Give a webhook a new secret, and show it in this answer alone."""
    webhook = await _webhook(doors, viewer, webhook_id)
    secret, grace = form["secret"], form["gracePeriodSeconds"]
    asked = {"secret": secret, "gracePeriodSeconds": int(grace) if _is_number(grace) else grace}
    if secret == webhook.previous_secret:
        return RedirectResponse(f"{WEBHOOKS}/{webhook_id}?{did('webhook-rotated')}", 303)
    if secret != webhook.secret:
        try:
            rotation = read_body(Rotation, asked)
            webhook = await run_in_threadpool(
                webhook_changes.rotate_secret, doors, viewer.key, webhook_id, rotation
            )
        except Problem as problem:
            refusal = refusal_of(problem, ("gracePeriodSeconds",))
            note_change(request, viewer.key, "rotateSecret", webhook_id, refusal.status)
            return await _asked_rotation(request, webhook, refusal, chosen=grace)
        note_change(request, viewer.key, "rotateSecret", webhook_id, 200)
    return await rendered(request, "webhook_secret.html", webhook=webhook, is_new=False)


@router.get("/delete")
async def deletion_page(
    webhook_id: str, request: Request, doors: DoorsDependency, viewer: ChangerDependency
) -> Response:
    """Ask whether a webhook is to be deleted, and say what goes with it."""
    webhook = await _webhook(doors, viewer, webhook_id)
    active = await run_in_threadpool(doors.store.active_replays_of, [webhook.id])
    return await rendered(
        request, "webhook_delete.html", webhook=webhook, active=active.get(webhook.id)
    )


@router.post("/delete", operation_id="deleteWebhook")
async def delete(
    webhook_id: str,
    request: Request,
    doors: DoorsDependency,
    viewer: ViewerDependency,
    _form: ChangeForm,
) -> Response:
    """Forget a webhook and its secret; an active replay of it is cancelled."""
    key = viewer.key
    await run_in_threadpool(
        doors.store.delete_webhook, webhook_id, of_account=key.sees, actor=key.id
    )
    note_change(request, key, "deleteWebhook", webhook_id, 303)
    return RedirectResponse(f"{WEBHOOKS}?{did('webhook-delete')}", 303)


async def _asked(
    request: Request,
    template: str,
    webhook: Webhook,
    refusal: Refusal | None = None,
    **context: Any,
) -> Response:
    """The page of a form about a webhook; with a refusal, as an answer to the form before."""
    status = 200 if refusal is None else refusal.status
    return await rendered(request, template, status, webhook=webhook, refusal=refusal, **context)


async def _asked_rotation(
    request: Request, webhook: Webhook, refusal: Refusal | None, *, chosen: str
) -> Response:
    return await _asked(
        request,
        "webhook_rotate.html",
        webhook,
        refusal,
        secret=new_secret(),
        graces=GRACES,
        chosen=chosen,
    )


async def _not_now(
    request: Request,
    doors: Doors,
    viewer: Viewer,
    action: str,
    webhook_id: str,
    problem: Problem,
) -> Response:
    """The page again, with why the receiver was not asked, or did not answer well."""
    if problem.kind not in (NOT_VALIDATED, RATE_LIMITED):
        raise problem
    note_change(request, viewer.key, action, webhook_id, problem.kind.status)
    return await show(
        request,
        doors,
        viewer,
        webhook_id,
        problem.kind.status,
        refused=f"{problem.kind.title}: {problem.detail}",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


async def _webhook(doors: Doors, viewer: Viewer, webhook_id: str) -> Webhook:
    return await run_in_threadpool(doors.store.webhook, webhook_id, of_account=viewer.key.sees)


def _done(request: Request, viewer: Viewer, action: str, webhook_id: str, code: str) -> Response:
    note_change(request, viewer.key, action, webhook_id, 303)
    return RedirectResponse(f"{WEBHOOKS}/{webhook_id}?{did(code)}", 303)
