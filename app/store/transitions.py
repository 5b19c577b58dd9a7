"""The UPDATE statements of replay state transitions, derived from the table of states."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Update, case, literal, update

from app.domain.states import ACTIVE, TERMINAL, ReplayEvent, ReplayState, moves
from app.store.sql import ms_from_now, now_ms
from app.store.tables import replays

STOPPED_WITHIN_S: Final = 3
"""A worker learns of a cancellation within two seconds, and delivers until then. The notification
of the end waits for it: it is the last request, and counts all deliveries."""


def transition(event: ReplayEvent, values: Mapping[str, Any] | None = None) -> Update:
    """An UPDATE that applies `event` to every replay whose state allows it, and sets `values`.

    The caller limits it to some replays. Zero changed rows mean that the state does not allow it.
    """
    targets = moves(event)
    # MySQL assigns in this order, and an expression sees columns assigned before it as changed:
    # the state, which other expressions read, comes last.
    assigned = {**(values or {}), **_values_of_end(event, targets), "state": _target(targets)}
    is_possible = replays.c.state.in_(sorted(targets))
    return update(replays).where(is_possible).ordered_values(*assigned.items())


def _target(targets: dict[ReplayState, ReplayState]) -> ColumnElement[str]:
    # Converted to str: drivers do not know the enum.
    if len(set(targets.values())) == 1:
        return literal(str(next(iter(targets.values()))))
    return case(
        {str(state): str(target) for state, target in targets.items()}, value=replays.c.state
    )


def _values_of_end(event: ReplayEvent, targets: dict[ReplayState, ReplayState]) -> dict[str, Any]:
    """The columns that change when a replay ends: it frees its webhook, and a notice is due."""
    # A replay that has ended does not end again, as with the last checkpoint after a cancellation.
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
