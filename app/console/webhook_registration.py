"""Registering a webhook: a form, and the answer that shows the secret this one time."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api import webhook_changes
from app.api.doors import DoorsDependency
from app.api.models.webhooks import WebhookRequest
from app.console.audit import note_change
from app.console.forms import ChangeForm, Form
from app.console.gate import ChangerDependency, ViewerDependency
from app.console.refused_forms import REFUSALS, read_body, refusal_of
from app.console.rendering import rendered
from app.domain.model import Validation

FIELDS: Final = ("url", "description", "validation", "eventTypes")

router = APIRouter()


@router.get("/webhooks/new")
async def registration_page(request: Request, _viewer: ChangerDependency) -> Response:
    """Ask what is to be registered."""
    typed = dict.fromkeys((*FIELDS, "accountId"), "") | {"validation": str(Validation.PING)}
    return await rendered(request, "webhook_new.html", typed=typed, refusal=None)


@router.post("/webhooks", operation_id="createWebhook")
async def register(
    request: Request, doors: DoorsDependency, viewer: ViewerDependency, form: ChangeForm
) -> Response:
    """Register a webhook, and show its secret in this answer alone."""
    try:
        webhook = await webhook_changes.register(doors, viewer.key, _asked(form))
    except REFUSALS as error:
        # Operators alone have a field for it; whoever else names one is told above the form.
        fields = (*FIELDS, "accountId") if viewer.is_operator else FIELDS
        refusal = refusal_of(error, fields)
        note_change(request, viewer.key, "createWebhook", None, refusal.status)
        typed = {name: form[name] for name in fields}
        return await rendered(
            request, "webhook_new.html", refusal.status, typed=typed, refusal=refusal
        )
    note_change(request, viewer.key, "createWebhook", webhook.id, 200)
    return await rendered(request, "webhook_secret.html", webhook=webhook, is_new=True)


def _asked(form: Form) -> WebhookRequest:
    asked: dict[str, object] = {
        "url": form["url"],
        "description": form["description"],
        "validation": form["validation"],
        # Spaces and ends of lines stand between globs, which hold none.
        "eventTypes": form["eventTypes"].split() or None,
        "accountId": form["accountId"] or None,
    }
    return read_body(WebhookRequest, asked)
