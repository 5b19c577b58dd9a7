"""The overview: live deliveries and latencies of all webhooks over time, and the worst webhooks."""

from dataclasses import dataclass
from typing import cast

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.delivery_plots import DeliveryPlots
from app.console.delivery_sums import DeliverySums, DeliverySumsReader
from app.console.page_requests import ViewerRequest
from app.console.time_ranges import RangeName, parse_range, time_ranges
from app.console.urls import OVERVIEW, PREFIX, jobs_url, page_url
from app.domain.live_backlog import LiveBacklog, WebhookHealth, health_of
from app.domain.model import Replay, ReplayFilter, Webhook
from app.domain.states import ACTIVE
from app.domain.tallies import DeliveryTally
from app.http.dependencies import AccountId
from app.services.authentication import select_account
from app.services.services import Services, now_ms
from app.store.overview import WebhookTotals

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class MissedRow:
    """A webhook that missed events, with its deliveries of the range."""

    webhook: Webhook
    whole: DeliveryTally
    active: Replay | None
    backlog: LiveBacklog | None

    @property
    def health(self) -> WebhookHealth | None:
        """Whether its receiver accepts live deliveries."""
        return health_of(self.webhook, self.backlog, self.active)


@dataclass(frozen=True, slots=True)
class _CurrentState:
    """What the page shows of the present, read in one call on a worker thread."""

    rows: list[MissedRow]
    totals: WebhookTotals
    active_jobs: int


@router.get("/overview")
async def overview_page(
    request: ViewerRequest, range_name: RangeName = "", account_id: AccountId = None
) -> Response:
    """Show the live deliveries of an account; operators see all accounts by default."""
    services = request.services
    of_account = select_account(request.key, account_id or None)
    present_ms = now_ms()
    ranges = time_ranges(services.settings.history_days, present_ms)
    shown = parse_range(range_name, ranges)
    reader = cast("DeliverySumsReader", request.http.app.state.delivery_sums)
    sums = await reader.read(shown, of_account)
    state = await run_in_threadpool(_read_state, services, sums, of_account)
    plots = DeliveryPlots.of(
        sums.tallies,
        shown,
        ranges,
        lambda name: page_url(OVERVIEW, {"range": name, "accountId": account_id}),
    )
    active = ReplayFilter(states=ACTIVE, account_id=account_id or None)
    return await request.render(
        "overview.html",
        account_id=account_id or "",
        plots=plots,
        rows=state.rows,
        totals=state.totals,
        active_jobs=state.active_jobs,
        jobs_url=jobs_url(active),
    )


def _read_state(services: Services, sums: DeliverySums, of_account: str | None) -> _CurrentState:
    store = services.store
    ids = [webhook_id for webhook_id, _ in sums.most_missed]
    webhooks = store.find_webhooks(ids)
    active, backlogs = store.active_replays_of(ids), store.live_backlogs(ids)
    states = store.count_by_state(ReplayFilter(), of_account=of_account)
    return _CurrentState(
        [
            MissedRow(webhooks[each], whole, active.get(each), backlogs.get(each))
            for each, whole in sums.most_missed
            if each in webhooks
        ],
        store.count_webhooks_by_health(of_account=of_account),
        sum(states[state] for state in ACTIVE),
    )
