"""The list of jobs: those that match a filter, latest first, with the number in each state."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.formats import format_field_time
from app.console.forms import FormRejection, form_rejection
from app.console.job_rows import ALL, RowStyle, counter_parts, job_rows
from app.console.page_requests import PageRequest, ViewerRequest
from app.console.urls import PREFIX, TEXT_FIELDS, filter_query, jobs_url, parse_filter
from app.domain.model import Replay, ReplayFilter
from app.domain.options import ReplayReason
from app.domain.replay_results import COMPLETED_WITH_FAILURES_LABEL
from app.domain.states import ReplayState
from app.http.dependencies import Cursor
from app.http.problems import Problem
from app.services.authentication import select_account
from app.services.services import now_ms
from app.store.pages import Page

ROWS: Final = 50

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class StateTab:
    """A link to the jobs in one state, or in all, with their number; empty if not counted."""

    name: str
    words: str
    href: str
    number: str
    is_current: bool


@router.get("/jobs")
async def jobs_page(request: ViewerRequest, cursor: Cursor = None) -> Response:
    """List the jobs that match the filter in the query, or show its errors."""
    viewer = request.viewer
    try:
        wanted, rejection = parse_filter(request.http.url.query), None
    except Problem as problem:
        wanted, rejection = ReplayFilter(), form_rejection(problem, TEXT_FIELDS)
    select_account(viewer.key, wanted.account_id)
    store, account_id = request.services.store, viewer.key.account_filter
    # Concurrently: the database counts while this process parses the rows.
    (page, names), counts = await asyncio.gather(
        run_in_threadpool(store.named_replays, wanted, cursor or None, ROWS, of_account=account_id),
        run_in_threadpool(store.count_by_state, wanted, of_account=account_id),
    )
    present_ms = now_ms()
    style = RowStyle(boxes=viewer.may_change, accounts=viewer.is_operator)
    return await request.render_form(
        "jobs.html",
        rejection,
        wanted=wanted,
        query=filter_query(wanted),
        typed=_field_values(request, wanted, rejection),
        tabs=_tabs(wanted, counts),
        reasons=tuple(ReplayReason),
        matching=sum(counts[state] for state in wanted.states or counts),
        before_ms=_upper_bound_ms(page, present_ms),
        rows=job_rows(request.templates, page.items, present_ms, style, names),
        style=style,
        older=page.next_cursor and jobs_url(wanted, cursor=page.next_cursor),
        newest=jobs_url(wanted) if cursor else None,
    )


def _field_values(
    request: PageRequest, wanted: ReplayFilter, rejection: FormRejection | None
) -> dict[str, str]:
    """Return the values of the filter's inputs. Rejected input is shown as typed."""
    if rejection is not None:
        return {name: request.http.query_params.get(name, "") for name in TEXT_FIELDS}
    return {
        "webhookId": wanted.webhook_id or "",
        "accountId": wanted.account_id or "",
        "createdFrom": format_field_time(wanted.created_from_ms),
        "createdTo": format_field_time(wanted.created_to_ms),
    }


def _upper_bound_ms(page: Page[Replay], present_ms: int) -> int:
    """Return a time after every job on the page. The database's clock may be ahead."""
    newest_ms = max((replay.created_ms for replay in page.items), default=0)
    return max(newest_ms, present_ms) + 1


def _tabs(wanted: ReplayFilter, counts: Mapping[ReplayState, int]) -> list[StateTab]:
    numbers = counter_parts(counts)
    choices = [(ALL, "All", frozenset[ReplayState]())]
    choices += [(str(state), str(state), frozenset({state})) for state in ReplayState]
    tabs = [
        StateTab(
            name,
            words,
            jobs_url(replace(wanted, states=states)),
            numbers[name],
            wanted.states == states,
        )
        for name, words, states in choices
    ]
    partial = replace(wanted, states=frozenset({ReplayState.COMPLETED}), with_failures=True)
    if wanted == partial:
        tabs = [replace(tab, is_current=False) for tab in tabs]
    label = COMPLETED_WITH_FAILURES_LABEL
    return [*tabs, StateTab("", label, jobs_url(partial), "", wanted == partial)]
