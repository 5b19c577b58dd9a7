"""The page of a webhook: its status, recent deliveries, missed events, rules, grants and jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.delivery_plots import DeliveryPlots
from app.console.job_rows import RowStyle, job_rows
from app.console.page_requests import PageRequest, ViewerRequest
from app.console.plots import BarPlot, missed_plot
from app.console.rules import RuleRow, RuleTest, condition_texts, rule_rows
from app.console.time_ranges import RangeName, TimeRange, parse_range, time_ranges
from app.console.urls import NEW_REPLAY, PREFIX, WEBHOOKS, jobs_url, page_url
from app.domain.endpoint_options import (
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
)
from app.domain.grants import Grant
from app.domain.live_backlog import LiveBacklog, health_of
from app.domain.missed import MissedHour
from app.domain.model import Replay, ReplayFilter, Webhook
from app.domain.options import Only
from app.domain.scheduled_retries import WaitingRetries
from app.domain.tallies import DeliveryTally
from app.domain.windows import format_time
from app.services.services import now_ms
from app.store.pages import Page

ROW_STYLE: Final = RowStyle(boxes=False, accounts=False, webhooks=False)

RULES_SHOWN: Final = 20
"""Of up to ten thousand. The page of the rules lists all."""

GRANTS_SHOWN: Final = 20
"""As of rules."""

JOBS_SHOWN: Final = 5
"""The latest. The list of jobs has all."""

router = APIRouter(prefix=PREFIX)


class MissedHourRow(NamedTuple):
    """An hour with missed events, and the URL of a new replay for it."""

    hour: MissedHour
    href: str


@dataclass(frozen=True, slots=True)
class MissedRange:
    """The range from the first to the last hour that has not been replayed.

    Its hours without a replay missed `events` events, the other hours in the range `repeated`.
    """

    from_ms: int
    to_ms: int
    events: int
    repeated: int
    href: str


@dataclass(frozen=True, slots=True)
class MissedEvents:
    """All hours with missed events, latest first. `open` is None if all were replayed."""

    rows: tuple[MissedHourRow, ...]
    events: int
    open: MissedRange | None
    plot: BarPlot


class GrantRow(NamedTuple):
    """A grant of the webhook's account. Values of conditions are JSON, as in `RuleRow`."""

    name: str
    event_types: tuple[str, ...]
    where: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _WebhookDetails:
    """Everything on the page, read in one call on a worker thread."""

    webhook: Webhook
    tallies: tuple[DeliveryTally, ...]
    missed: tuple[MissedHour, ...]
    rules: list[RuleRow]
    has_more_rules: bool
    grants: Page[Grant]
    replays: Page[Replay]
    active: Replay | None
    backlog: LiveBacklog | None
    retries: WaitingRetries | None


@router.get("/webhooks/{webhook_id}")
async def webhook_page(
    webhook_id: str, request: ViewerRequest, range_name: RangeName = ""
) -> Response:
    """Show a webhook."""
    return await render_webhook(request, webhook_id, range_name=range_name)


async def render_webhook(
    request: PageRequest,
    webhook_id: str,
    status: int = 200,
    range_name: str = "",
    **result: Any,
) -> Response:
    """Return the page of a webhook, with the result of an action: `test` or `error`.

    Raises:
        WebhookNotFound: no webhook of the viewer has this id.
        Problem: no range has this name.
    """
    present_ms, settings = now_ms(), request.services.settings
    history_from_ms = present_ms - settings.history_ms
    ranges = time_ranges(settings.history_days, present_ms)
    shown = parse_range(range_name, ranges)
    details = await run_in_threadpool(_read_details, request, webhook_id, shown, history_from_ms)
    webhook = details.webhook
    url = f"{WEBHOOKS}/{webhook.id}"
    return await request.render(
        "webhook.html",
        status,
        webhook=webhook,
        authentication=_authentication(webhook),
        receiver_health=health_of(webhook, details.backlog, details.active),
        backlog=details.backlog,
        retries=details.retries,
        has_two_secrets=len(webhook.secrets_at(present_ms)) > 1,
        plots=DeliveryPlots.of(
            details.tallies, shown, ranges, lambda name: page_url(url, {"range": name}) + "#range"
        ),
        missed=missed_events(webhook.id, details.missed, history_from_ms, present_ms),
        history_days=settings.history_days,
        rules=details.rules,
        grants=[_grant_row(grant) for grant in details.grants.items],
        has_more_grants=details.grants.next_cursor is not None,
        has_more_rules=details.has_more_rules,
        rule_test=RuleTest(""),
        active=details.active,
        rows=job_rows(request.templates, details.replays.items, present_ms, ROW_STYLE, {}),
        row_style=ROW_STYLE,
        jobs_url=jobs_url(ReplayFilter(webhook_id=webhook.id)),
        **{"error": None, "test": None} | result,
    )


def _read_details(
    request: PageRequest, webhook_id: str, shown: TimeRange, history_from_ms: int
) -> _WebhookDetails:
    store = request.services.store
    webhook = store.webhook(webhook_id, of_account=request.key.account_filter)
    rules = store.rules(webhook.id, limit=RULES_SHOWN)
    return _WebhookDetails(
        webhook,
        store.tallies(webhook.id, shown.span, shown.from_ms),
        store.missed_hours(webhook.id, history_from_ms),
        rule_rows(request.services, webhook.id, rules.items),
        rules.next_cursor is not None,
        store.grants(webhook.account_id, limit=GRANTS_SHOWN),
        store.replays(ReplayFilter(webhook_id=webhook.id), limit=JOBS_SHOWN),
        store.active_replays_of([webhook.id]).get(webhook.id),
        store.live_backlogs([webhook.id]).get(webhook.id),
        store.waiting_retries([webhook.id]).get(webhook.id),
    )


def _authentication(webhook: Webhook) -> str | None:
    """How requests authenticate, without secrets."""
    match webhook.options and webhook.options.authentication:
        case BasicAuthentication(username):
            return f"basic, user {username}"
        case BearerAuthentication():
            return "bearer token"
        case ClientCredentials(token_url, client_id):
            return f"OAuth 2.0, client {client_id} at {token_url}"
    return None


def _grant_row(grant: Grant) -> GrantRow:
    return GrantRow(grant.name, grant.event_types, condition_texts(grant.where))


def missed_events(
    webhook_id: str, hours: Sequence[MissedHour], from_ms: int, present_ms: int
) -> MissedEvents:
    """Return the missed events since `from_ms`. `hours` are ordered, earliest first.

    Windows of replays end at the present, also in the current hour.
    """
    rows = [
        MissedHourRow(hour, _replay_url(webhook_id, hour.start_ms, min(hour.end_ms, present_ms)))
        for hour in reversed(hours)
    ]
    return MissedEvents(
        tuple(rows),
        sum(hour.missed for hour in hours),
        _open_range(webhook_id, hours, present_ms),
        missed_plot(hours, from_ms, present_ms),
    )


def _open_range(
    webhook_id: str, hours: Sequence[MissedHour], present_ms: int
) -> MissedRange | None:
    missed = [hour for hour in hours if not hour.is_replayed]
    if not missed:
        return None
    from_ms, to_ms = missed[0].start_ms, min(missed[-1].end_ms, present_ms)
    replayed = [hour for hour in hours if hour.is_replayed and from_ms <= hour.start_ms < to_ms]
    return MissedRange(
        from_ms,
        to_ms,
        sum(hour.missed for hour in missed),
        sum(hour.missed for hour in replayed),
        _replay_url(webhook_id, from_ms, to_ms),
    )


def _replay_url(webhook_id: str, from_ms: int, to_ms: int) -> str:
    fields = {
        "webhookId": webhook_id,
        "from": format_time(from_ms),
        "to": format_time(to_ms),
        "only": str(Only.FAILED),
    }
    return page_url(NEW_REPLAY, fields)
