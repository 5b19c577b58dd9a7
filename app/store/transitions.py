"""The SQL that moves a replay, derived from the table of its states."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Update, case, literal, update

from app.domain.states import ACTIVE, TERMINAL, ReplayEvent, ReplayState, moves
from app.store.clock import ms_from_now, now_ms
from app.store.tables import replays

STOPPED_WITHIN_S: Final = 3
"""After a cancellation its worker, which learns of it within two seconds, still sends and counts:
the notice of the end is to be the last that its receiver gets, with the counts of all before."""


def moved_by(event: ReplayEvent, values: Mapping[str, Any] | None = None) -> Update:
    """An UPDATE that takes every replay that may have `event` to where it leads.

    `values` change along. The caller narrows it down to one replay. Zero rows: the replay is in
    another state by now.
    """
    targets = moves(event)
    # MySQL assigns in this order, and what comes later reads what came before as already changed:
    # the state, which others look at, comes last.
    assigned = {**(values or {}), **_values_when_over(event, targets), "state": _target(targets)}
    is_possible = replays.c.state.in_(sorted(targets))
    return update(replays).where(is_possible).ordered_values(*assigned.items())


def _target(targets: dict[ReplayState, ReplayState]) -> ColumnElement[str]:
    # Only strings of our own enum: their type is str for every driver.
    if len(set(targets.values())) == 1:
        return literal(str(next(iter(targets.values()))))
    return case(
        {str(state): str(target) for state, target in targets.items()}, value=replays.c.state
    )


def _values_when_over(
    event: ReplayEvent, targets: dict[ReplayState, ReplayState]
) -> dict[str, Any]:
    """What changes along when a replay ends: its webhook is free for another one, and told."""
    # What is over already is not ended again, as by the last word of a worker that was cancelled.
    ends = {target in TERMINAL for state, target in targets.items() if state in ACTIVE}
    assert len(ends) == 1, "an event either always ends a replay or never does"
    if not ends.pop():
        return {}
    return {
        "active_webhook_id": None,
        "claimable_ms": None,
        "finished_ms": now_ms(),
        "waiting_for": None,
        "awaits": None,
        "notice_due_ms": _notice_due_ms(event),
    }


def _notice_due_ms(event: ReplayEvent) -> ColumnElement[int]:
    if event is not ReplayEvent.CANCEL:
        return now_ms()
    is_held = replays.c.state.in_([ReplayState.STARTED, ReplayState.ONGOING])
    return case((is_held, ms_from_now(STOPPED_WITHIN_S)), else_=now_ms())
