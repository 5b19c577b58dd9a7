"""A webhook's own page: how its receiver fares, what it missed, what it is owed."""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import Doors, DoorsDependency, now_ms
from app.console.gate import Viewer, ViewerDependency
from app.console.job_filters import jobs_url
from app.console.job_rows import RowStyle, job_rows
from app.console.missed import missed_of
from app.console.receiver_plots import settled_plot
from app.console.rendering import environment_of, rendered
from app.domain.filters import ReplayFilter
from app.domain.missed import MissedHour
from app.domain.model import Replay, Webhook
from app.domain.rules import Rule
from app.domain.tallies import DeliveryTally, Span, last_hour_from_ms, summed
from app.store.pages import Page

ROW_STYLE: Final = RowStyle(boxes=False, accounts=False, webhooks=False)

RULES: Final = 20
"""Of up to ten thousand; the API lists all."""

JOBS: Final = 5
"""The latest; the list of jobs has all of them."""

router = APIRouter()


class RuleRow(NamedTuple):
    """A rule, the values of its conditions written as JSON: 42 is not "42"."""

    name: str
    event_types: tuple[str, ...]
    where: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """All that the page shows, as one hop to a thread found it."""

    webhook: Webhook
    settled: tuple[DeliveryTally, ...]
    missed: tuple[MissedHour, ...]
    rules: Page[Rule]
    replays: Page[Replay]
    active: Replay | None


@router.get("/webhooks/{webhook_id}")
async def webhook_page(
    webhook_id: str, request: Request, doors: DoorsDependency, viewer: ViewerDependency
) -> Response:
    """Show a webhook."""
    return await show(request, doors, viewer, webhook_id)


async def show(
    request: Request,
    doors: Doors,
    viewer: Viewer,
    webhook_id: str,
    status: int = 200,
    **came_of_it: Any,
) -> Response:
    """The page of a webhook, and what came of what was just asked for on it.

    Raises:
        WebhookNotFound: there is none of this id, or it is another account's.
    """
    present_ms = now_ms()
    history_from_ms = present_ms - doors.settings.history_ms
    hour_from_ms = last_hour_from_ms(present_ms)
    look = await run_in_threadpool(_look, doors, viewer, webhook_id, hour_from_ms, history_from_ms)
    webhook = look.webhook
    return await rendered(
        request,
        "webhook.html",
        status,
        webhook=webhook,
        signs_twice=len(webhook.secrets_at(present_ms)) > 1,
        hour=summed(look.settled, hour_from_ms),
        settled=look.settled,
        settled_plot=settled_plot(look.settled, hour_from_ms, present_ms),
        missed=missed_of(webhook.id, look.missed, history_from_ms, present_ms),
        history_days=doors.settings.history_days,
        rules=[_rule_row(rule) for rule in look.rules.items],
        has_more_rules=look.rules.next_cursor is not None,
        active=look.active,
        rows=job_rows(environment_of(request), look.replays.items, present_ms, ROW_STYLE),
        row_style=ROW_STYLE,
        jobs_url=jobs_url(ReplayFilter(webhook_id=webhook.id)),
        **{"refused": None, "trial": None} | came_of_it,
    )


def _look(
    doors: Doors, viewer: Viewer, webhook_id: str, hour_from_ms: int, history_from_ms: int
) -> _Look:
    store = doors.store
    webhook = store.webhook(webhook_id, of_account=viewer.key.sees)
    return _Look(
        webhook,
        store.tallies(webhook.id, Span.SETTLED, hour_from_ms),
        store.missed_hours(webhook.id, history_from_ms),
        store.rules(webhook.id, limit=RULES),
        store.replays(ReplayFilter(webhook_id=webhook.id), limit=JOBS),
        store.active_replays_of([webhook.id]).get(webhook.id),
    )


def _rule_row(rule: Rule) -> RuleRow:
    where = ((path, json.dumps(value, ensure_ascii=False)) for path, value in rule.where)
    return RuleRow(rule.name, rule.event_types, tuple(where))
