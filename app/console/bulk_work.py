"""Many jobs at once: how many an order is about, and doing it, a bounded time at a time."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from starlette.concurrency import run_in_threadpool

from app.api.doors import Doors
from app.api.problems import UNAVAILABLE
from app.api.refusals import problem_of
from app.api.replay_requests import queue_retry
from app.console.bulk_orders import Action, Order
from app.console.refused_forms import REFUSALS
from app.domain.accounts import ApiKey
from app.domain.model import Replay
from app.domain.states import ReplayState
from app.store import Store, StoreUnavailable

BEGIN_S: Final = 5.0
"""So long after a request began, nothing more is begun for it."""

RETRY_S_MAX: Final = 10.0
"""How long one job's retry may take: the log and, for another target, its receiver are asked."""

MOVED_AT_ONCE: Final = 100

REFUSED_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """How many jobs an order is about, by state: those that it can be done to, and the others.

    `order` is the order for the former; `missing` of those that were ticked are not there.
    """

    order: Order
    fitting: Mapping[ReplayState, int]
    others: Mapping[ReplayState, int]
    missing: int


class Refused(NamedTuple):
    """A job that was left as it is, and why, in words."""

    replay_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request did: `order` is what is left of it, with `is_over` when nothing is.

    `refused` are the jobs that were refused this time. `stopped_by` says in words what else than
    the time ended it early.
    """

    order: Order
    is_over: bool
    refused: tuple[Refused, ...] = ()
    stopped_by: str | None = None


_Move = Callable[[tuple[str, ...]], int]


def plan(store: Store, order: Order, caller: ApiKey) -> Plan:
    """How many jobs of an order there are that the caller sees. Blocks; changes nothing."""
    if order.ids is None:
        return _plan_of_filter(store, order, caller.sees)
    found = store.replays_by_id(order.ids, of_account=caller.sees)
    fitting = {each: replay for each, replay in found.items() if _fits(order.action, replay)}
    others = [replay.state for each, replay in found.items() if each not in fitting]
    ids = tuple(each for each in order.ids if each in fitting)
    return Plan(
        replace(order, ids=ids, expected=len(ids)),
        Counter(replay.state for replay in fitting.values()),
        Counter(others),
        len(order.ids) - len(found),
    )


def _plan_of_filter(store: Store, order: Order, account: str | None) -> Plan:
    matching = _counts(store.count_by_state(order.matching, of_account=account), order)
    fitting = Counter[ReplayState]()
    if (wanted := order.fitting) is not None:
        counted = store.count_by_state(wanted, of_account=account)
        fitting = Counter({state: counted[state] for state in wanted.states})
    others = {state: max(0, matching[state] - fitting[state]) for state in matching}
    return Plan(replace(order, expected=sum(fitting.values())), fitting, others, 0)


def _counts(counted: Mapping[ReplayState, int], order: Order) -> dict[ReplayState, int]:
    return {
        state: number
        for state, number in counted.items()
        if not order.wanted.states or state in order.wanted.states
    }


def _fits(action: Action, replay: Replay) -> bool:
    return replay.state in action.states and (
        action is not Action.RETRY or replay.counts.failed > 0
    )


async def carry_out(doors: Doors, order: Order, caller: ApiKey) -> Outcome:
    """Do as much of an order as a request has time for; at least a part, so that it comes on."""
    until_s = time.monotonic() + BEGIN_S
    if order.action is Action.RETRY:
        return await _retry(doors, order, caller, until_s)
    return await run_in_threadpool(_move, doors.store, order, caller, until_s)


def _move(store: Store, order: Order, caller: ApiKey, until_s: float) -> Outcome:
    move = _mover(store, order.action, caller)
    if order.ids is not None:
        # As many as can be ticked take a second or so.
        moved = move(order.ids)
        return Outcome(replace(order, done=moved, refused=len(order.ids) - moved), is_over=True)
    done = order.done
    try:
        while ids := _next_ids(store, order, caller):
            if done > order.done and time.monotonic() >= until_s:
                return Outcome(replace(order, done=done), is_over=False)
            done += move(ids)
    except StoreUnavailable as error:
        # What was done before is done, and is told.
        stopped_by = problem_of(error, "").detail
        return Outcome(replace(order, done=done), is_over=False, stopped_by=stopped_by)
    refused = max(0, order.expected - done)
    return Outcome(replace(order, done=done, refused=refused), is_over=True)


def _next_ids(store: Store, order: Order, caller: ApiKey) -> tuple[str, ...]:
    """Some jobs that the action can be done to: none of them twice, for it moves them on."""
    wanted = order.fitting
    if wanted is None:
        return ()
    return store.replay_ids(wanted, order.before_ms, MOVED_AT_ONCE, of_account=caller.sees)


def _mover(store: Store, action: Action, caller: ApiKey) -> _Move:
    move = {
        Action.PAUSE: store.pause_replays,
        Action.RESUME: store.resume_replays,
        Action.CANCEL: store.cancel_replays,
    }[action]
    return lambda ids: move(ids, of_account=caller.sees, actor=caller.id)


async def _retry(doors: Doors, order: Order, caller: ApiKey, until_s: float) -> Outcome:
    refused: list[Refused] = []
    is_over = False
    while not is_over:
        try:
            step = await run_in_threadpool(_next_retry, doors.store, order, caller)
            if step is None:
                is_over = True
                break
            reason = await _queue(doors, f"{order.once}-{step.replay_id}", step.replay_id, caller)
        except StoreUnavailable as error:
            stopped_by = problem_of(error, "").detail
            return Outcome(order, is_over=False, refused=tuple(refused), stopped_by=stopped_by)
        except _Stopped as stopped:
            return Outcome(order, is_over=False, refused=tuple(refused), stopped_by=str(stopped))
        if reason is not None:
            refused.append(Refused(step.replay_id, reason))
        order = step.behind(is_done=reason is None)
        is_over = step.is_last
        if time.monotonic() >= until_s:
            break
    return Outcome(order, is_over, tuple(refused))


class _Stopped(Exception):
    """Nothing can be queued now, whichever job it is."""


async def _queue(doors: Doors, name: str, replay_id: str, caller: ApiKey) -> str | None:
    """Queue a job's retry; why not, if it is refused.

    Raises:
        _Stopped: the log or the database does not answer.
    """
    try:
        async with asyncio.timeout(RETRY_S_MAX):
            await queue_retry(doors, caller, replay_id, name)
    except TimeoutError:
        return f"it was not queued within {RETRY_S_MAX:g} s"
    except REFUSALS as error:
        problem = problem_of(error, "")
        if problem.kind is UNAVAILABLE:
            raise _Stopped(problem.detail) from None
        return problem.detail
    return None


class _Step(NamedTuple):
    """The next job of an order, and what is left of the order behind it."""

    replay_id: str
    rest: Order
    is_last: bool

    def behind(self, *, is_done: bool) -> Order:
        """The order once the job is done, or refused."""
        if is_done:
            return replace(self.rest, done=self.rest.done + 1)
        return replace(self.rest, refused=self.rest.refused + 1)


def _next_retry(store: Store, order: Order, caller: ApiKey) -> _Step | None:
    if order.ids is not None:
        first, rest = order.ids[:1], order.ids[1:]
        return _Step(first[0], replace(order, ids=rest), not rest) if first else None
    wanted = order.fitting
    if wanted is None:
        return None
    # A retry leaves its job as it was: the list goes on by where it stood.
    page = store.replays(wanted, order.cursor, 1, of_account=caller.sees)
    rest_of_list = replace(order, cursor=page.next_cursor)
    return next(
        (_Step(each.id, rest_of_list, page.next_cursor is None) for each in page.items), None
    )
