"""The list of jobs: those of a filter, the latest first, with how many there are in each state."""

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.access import account_meant
from app.api.doors import DoorsDependency, now_ms
from app.api.paging import Cursor
from app.console.gate import Viewer, ViewerDependency
from app.console.job_filters import filter_of, jobs_url, query_of
from app.console.job_rows import ALL, counter_parts, job_rows
from app.console.rendering import environment_of, rendered
from app.replay.filters import ReplayFilter
from app.replay.model import Replay
from app.replay.states import ReplayState
from app.store import Store
from app.store.pages import Page

ROWS: Final = 50

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Tab:
    """A link to the jobs of one state, or of all: the name of its part, and its number."""

    name: str
    words: str
    href: str
    number: str
    is_current: bool


@router.get("/jobs")
async def jobs_page(
    request: Request, doors: DoorsDependency, viewer: ViewerDependency, cursor: Cursor = None
) -> Response:
    """List the jobs of the filter in the query."""
    wanted = filter_of(request.url.query)
    account_meant(viewer.key, wanted.account_id)
    page, counts = await run_in_threadpool(_look, doors.store, viewer, wanted, cursor or None)
    present_ms = now_ms()
    return await rendered(
        request,
        "jobs.html",
        wanted=wanted,
        query=query_of(wanted),
        tabs=_tabs(wanted, counts),
        rows=job_rows(environment_of(request), page.items, present_ms),
        older=page.next_cursor and jobs_url(wanted, cursor=page.next_cursor),
        newest=jobs_url(wanted) if cursor else None,
    )


def _look(
    store: Store, viewer: Viewer, wanted: ReplayFilter, cursor: str | None
) -> tuple[Page[Replay], dict[ReplayState, int]]:
    sees = viewer.key.sees
    page = store.replays_matching(wanted, cursor, ROWS, of_account=sees)
    return page, dict(store.count_by_state(wanted, of_account=sees))


def _tabs(wanted: ReplayFilter, counts: dict[ReplayState, int]) -> list[Tab]:
    numbers = counter_parts(counts)
    choices = [(ALL, "All", frozenset[ReplayState]())]
    choices += [(str(state), str(state), frozenset({state})) for state in ReplayState]
    return [
        Tab(name, words, _url(wanted, states), numbers[name], wanted.states == states)
        for name, words, states in choices
    ]


def _url(wanted: ReplayFilter, states: frozenset[ReplayState]) -> str:
    return jobs_url(ReplayFilter(states, wanted.webhook_id, wanted.account_id))
