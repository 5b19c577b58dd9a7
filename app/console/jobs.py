"""The list of jobs: those of a filter, the latest first, with how many there are in each state."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.access import account_meant
from app.api.doors import DoorsDependency, now_ms
from app.api.paging import Cursor
from app.api.problems import Problem
from app.console.form_times import field_time
from app.console.gate import ViewerDependency
from app.console.job_filters import TEXTS, filter_of, jobs_url, query_of
from app.console.job_rows import ALL, RowStyle, counter_parts, job_rows
from app.console.refused_forms import Refusal, refusal_of
from app.console.rendering import environment_of, rendered
from app.domain.filters import ReplayFilter
from app.domain.model import Replay
from app.domain.states import ReplayState
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
    """List the jobs of the filter in the query; of one that is none, say so beside its fields."""
    try:
        wanted, refusal = filter_of(request.url.query), None
    except Problem as problem:
        wanted, refusal = ReplayFilter(), refusal_of(problem, TEXTS)
    account_meant(viewer.key, wanted.account_id)
    store, sees = doors.store, viewer.key.sees
    # At a time: the database counts while the rows of the page are read here.
    page, counts = await asyncio.gather(
        run_in_threadpool(store.replays, wanted, cursor or None, ROWS, of_account=sees),
        run_in_threadpool(store.count_by_state, wanted, of_account=sees),
    )
    present_ms = now_ms()
    style = RowStyle(boxes=viewer.may_change, accounts=viewer.is_operator)
    return await rendered(
        request,
        "jobs.html",
        200 if refusal is None else refusal.status,
        wanted=wanted,
        query=query_of(wanted),
        typed=_typed(request, wanted, refusal),
        refusal=refusal,
        tabs=_tabs(wanted, counts),
        matching=sum(counts[state] for state in wanted.states or counts),
        before_ms=_just_after(page, present_ms),
        rows=job_rows(environment_of(request), page.items, present_ms, style),
        style=style,
        older=page.next_cursor and jobs_url(wanted, cursor=page.next_cursor),
        newest=jobs_url(wanted) if cursor else None,
    )


def _typed(request: Request, wanted: ReplayFilter, refusal: Refusal | None) -> dict[str, str]:
    """What the fields of the filter show: the filter, or what was typed in vain."""
    if refusal is not None:
        return {name: request.query_params.get(name, "") for name in TEXTS}
    return {
        "webhookId": wanted.webhook_id or "",
        "accountId": wanted.account_id or "",
        "createdFrom": field_time(wanted.created_from_ms),
        "createdTo": field_time(wanted.created_to_ms),
    }


def _just_after(page: Page[Replay], present_ms: int) -> int:
    """The first moment after all that the page tells of; the database's clock may be ahead."""
    newest_ms = max((replay.created_ms for replay in page.items), default=0)
    return max(newest_ms, present_ms) + 1


def _tabs(wanted: ReplayFilter, counts: Mapping[ReplayState, int]) -> list[Tab]:
    numbers = counter_parts(counts)
    choices = [(ALL, "All", frozenset[ReplayState]())]
    choices += [(str(state), str(state), frozenset({state})) for state in ReplayState]
    return [
        Tab(
            name,
            words,
            jobs_url(replace(wanted, states=states)),
            numbers[name],
            wanted.states == states,
        )
        for name, words, states in choices
    ]
