"""Bulk actions: a confirmation page, and the execution in requests of limited duration."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.console.bulk_requests import BulkAction, BulkRequest, parse_bulk_request
from app.console.flash_messages import flash_query
from app.console.forms import REJECTIONS
from app.console.page_requests import ChangeRequest
from app.console.urls import PREFIX, jobs_url
from app.domain.accounts import ApiKey
from app.domain.model import Replay
from app.domain.states import ReplayEvent, ReplayState
from app.http.error_table import problem_of
from app.http.problems import UNAVAILABLE
from app.services.authentication import select_account
from app.services.replays import retry_replay
from app.services.services import Services
from app.store import Store, StoreUnavailable

REQUEST_S: Final = 5.0
"""A request starts no further work after this time."""

RETRY_S_MAX: Final = 10.0
"""The timeout of one retry, which queries the log and may verify another target's receiver."""

IDS_PER_BATCH: Final = 100

REJECTED_SHOWN: Final = 50

_REDIRECT: Final = 303
"""The status of the audit line, also for a request that leaves jobs for the next."""

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The numbers of eligible and of other jobs, by state.

    `request` is limited to eligible jobs. `missing` of the selected jobs do not exist.
    """

    request: BulkRequest
    eligible: Mapping[ReplayState, int]
    others: Mapping[ReplayState, int]
    missing: int


class RejectedReplay(NamedTuple):
    """A job that was not changed, and why."""

    replay_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of one request: `request` is what remains, `is_done` whether nothing does.

    `rejected` are the jobs rejected in this request. `stopped_by` is an error that ended it early.
    """

    request: BulkRequest
    is_done: bool
    rejected: tuple[RejectedReplay, ...] = ()
    stopped_by: str | None = None


_MoveReplays = Callable[[tuple[str, ...]], int]


@router.post("/jobs/bulk")
async def confirm_page(request: ChangeRequest) -> Response:
    """Show how many jobs a bulk action applies to, and ask for confirmation."""
    submitted = parse_bulk_request(request.form)
    select_account(request.key, submitted.wanted.account_id)
    if submitted.ids == ():
        return RedirectResponse(_list_url(submitted, "none-selected"), _REDIRECT)
    preview = await run_in_threadpool(
        preview_bulk_request, request.services.store, submitted, request.key
    )
    states = [
        each for each in ReplayState if preview.eligible.get(each) or preview.others.get(each)
    ]
    back = jobs_url(submitted.wanted)
    return await request.render("bulk_confirm.html", preview=preview, states=states, back=back)


@router.post("/jobs/bulk/do", operation_id="changeReplays")
async def execute(request: ChangeRequest) -> Response:
    """Run or continue a bulk action for as long as one request may take."""
    submitted = parse_bulk_request(request.form)
    select_account(request.key, submitted.wanted.account_id)
    result = await run_bulk_request(request.services, submitted, request.key)
    rest = result.request
    changed = f"{rest.done - submitted.done} replays"
    request.log_change(_REDIRECT, changed, submitted.action.operation)
    if result.is_done and not (rest.rejected and rest.action is BulkAction.RETRY):
        url = _list_url(rest, rest.action, rest.done, rest.rejected)
        return RedirectResponse(url, _REDIRECT)
    return await request.render(
        "bulk_result.html",
        result=result,
        bulk=rest,
        shown=result.rejected[:REJECTED_SHOWN],
        back=jobs_url(rest.wanted),
    )


def _list_url(bulk: BulkRequest, code: str, done: int = 1, rejected: int = 0) -> str:
    """Return the URL of the job list, with a message about what was done."""
    url = jobs_url(bulk.wanted)
    return f"{url}{'&' if '?' in url else '?'}{flash_query(code, done, rejected)}"


def preview_bulk_request(store: Store, bulk: BulkRequest, caller: ApiKey) -> BulkPreview:
    """Count the jobs of a bulk action that the caller sees. Blocks; changes nothing."""
    if bulk.ids is None:
        return _preview_filter(store, bulk, caller.account_filter)
    found = store.replays_by_id(bulk.ids, of_account=caller.account_filter)
    eligible = {each: replay for each, replay in found.items() if _is_eligible(bulk.action, replay)}
    others = [replay.state for each, replay in found.items() if each not in eligible]
    ids = tuple(each for each in bulk.ids if each in eligible)
    return BulkPreview(
        replace(bulk, ids=ids, expected=len(ids)),
        Counter(replay.state for replay in eligible.values()),
        Counter(others),
        len(bulk.ids) - len(found),
    )


def _preview_filter(store: Store, bulk: BulkRequest, account: str | None) -> BulkPreview:
    matching = {
        state: number
        for state, number in store.count_by_state(bulk.matching, of_account=account).items()
        if not bulk.wanted.states or state in bulk.wanted.states
    }
    eligible = Counter[ReplayState]()
    if (wanted := bulk.eligible) is not None:
        counted = store.count_by_state(wanted, of_account=account)
        eligible = Counter({state: counted[state] for state in wanted.states})
    others = {state: max(0, matching[state] - eligible[state]) for state in matching}
    return BulkPreview(replace(bulk, expected=sum(eligible.values())), eligible, others, 0)


def _is_eligible(action: BulkAction, replay: Replay) -> bool:
    return replay.state in action.states and (
        action is not BulkAction.RETRY or replay.counts.failed > 0
    )


async def run_bulk_request(services: Services, bulk: BulkRequest, caller: ApiKey) -> BulkResult:
    """Run a bulk action for as long as one request may take, and at least one step of it."""
    until_s = time.monotonic() + REQUEST_S
    if bulk.action is BulkAction.RETRY:
        return await _retry_replays(services, bulk, caller, until_s)
    return await run_in_threadpool(_move_replays, services.store, bulk, caller, until_s)


def _move_replays(store: Store, bulk: BulkRequest, caller: ApiKey, until_s: float) -> BulkResult:
    move = _mover(store, bulk.action, caller)
    if bulk.ids is not None:
        # The maximum of selected jobs takes about a second.
        moved = move(bulk.ids)
        rejected = len(bulk.ids) - moved
        return BulkResult(replace(bulk, done=moved, rejected=rejected), is_done=True)
    done = bulk.done
    try:
        while ids := _next_ids(store, bulk, caller):
            if done > bulk.done and time.monotonic() >= until_s:
                return BulkResult(replace(bulk, done=done), is_done=False)
            done += move(ids)
    except StoreUnavailable as error:
        # Earlier batches are committed, and reported.
        stopped_by = problem_of(error).detail
        return BulkResult(replace(bulk, done=done), is_done=False, stopped_by=stopped_by)
    rejected = max(0, bulk.expected - done)
    return BulkResult(replace(bulk, done=done, rejected=rejected), is_done=True)


def _next_ids(store: Store, bulk: BulkRequest, caller: ApiKey) -> tuple[str, ...]:
    """Return eligible jobs. The action changes their state, so none is returned twice."""
    wanted = bulk.eligible
    if wanted is None:
        return ()
    return store.replay_ids(wanted, bulk.before_ms, IDS_PER_BATCH, of_account=caller.account_filter)


def _mover(store: Store, action: BulkAction, caller: ApiKey) -> _MoveReplays:
    event = ReplayEvent[action.name]
    of_account, actor = caller.account_filter, caller.actor
    return lambda ids: store.move_replays(ids, event, of_account=of_account, actor=actor)


async def _retry_replays(
    services: Services, bulk: BulkRequest, caller: ApiKey, until_s: float
) -> BulkResult:
    rejected: list[RejectedReplay] = []
    is_done = False
    while not is_done:
        try:
            step = await run_in_threadpool(_next_retry, services.store, bulk, caller)
            if step is None:
                is_done = True
                break
            idempotency_key = f"{bulk.once}-{step.replay_id}"
            reason = await _queue_retry(services, idempotency_key, step.replay_id, caller)
        except StoreUnavailable as error:
            stopped_by = problem_of(error).detail
            return BulkResult(bulk, False, tuple(rejected), stopped_by)
        except _QueueUnavailable as error:
            return BulkResult(bulk, False, tuple(rejected), str(error))
        if reason is not None:
            rejected.append(RejectedReplay(step.replay_id, reason))
        bulk = step.request_after(is_queued=reason is None)
        is_done = step.is_last
        if time.monotonic() >= until_s:
            break
    return BulkResult(bulk, is_done, tuple(rejected))


class _QueueUnavailable(Exception):
    """No retry can be queued now: the log or the database does not answer."""


async def _queue_retry(
    services: Services, idempotency_key: str, replay_id: str, caller: ApiKey
) -> str | None:
    """Queue a retry. Returns the reason if it is rejected.

    Raises:
        _QueueUnavailable: the log or the database does not answer.
    """
    try:
        async with asyncio.timeout(RETRY_S_MAX):
            await retry_replay(services, caller, replay_id, idempotency_key)
    except TimeoutError:
        return f"not queued within {RETRY_S_MAX:g} s"
    except REJECTIONS as error:
        problem = problem_of(error)
        if problem.kind is UNAVAILABLE:
            raise _QueueUnavailable(problem.detail) from None
        return problem.detail
    return None


class _NextRetry(NamedTuple):
    """The next job of a bulk retry, and the request without it."""

    replay_id: str
    rest: BulkRequest
    is_last: bool

    def request_after(self, *, is_queued: bool) -> BulkRequest:
        """Return the request after the retry was queued or rejected."""
        if is_queued:
            return replace(self.rest, done=self.rest.done + 1)
        return replace(self.rest, rejected=self.rest.rejected + 1)


def _next_retry(store: Store, bulk: BulkRequest, caller: ApiKey) -> _NextRetry | None:
    if bulk.ids is not None:
        first, rest = bulk.ids[:1], bulk.ids[1:]
        return _NextRetry(first[0], replace(bulk, ids=rest), not rest) if first else None
    wanted = bulk.eligible
    if wanted is None:
        return None
    # A retry does not change its job's state, so a cursor marks the position.
    page = store.replays(wanted, bulk.cursor, 1, of_account=caller.account_filter)
    rest_of_list = replace(bulk, cursor=page.next_cursor)
    return next(
        (_NextRetry(each.id, rest_of_list, page.next_cursor is None) for each in page.items), None
    )
