"""The states of a replay: one table of transitions, from which the store derives its SQL.

OPEN ──claim──> STARTED ──begin──> ONGOING ──complete──> COMPLETED
 ^ ^               │                  │
 │ └────release────┴──────────────────┘        any of the three ──pause───> PAUSED
 ├──resume── PAUSED                            these and PAUSED ──cancel──> CANCELLED
 └──resume── FAILED                             STARTED, ONGOING ──fail──> FAILED

A worker holds the replay in STARTED and ONGOING; without heartbeats, another worker takes it over
in the same state. PAUSE and CANCEL take effect at once: the worker learns of them by its next write
and may then store a last checkpoint. A FAILED replay is over until its owner resumes it. A replay
that awaits a restore is OPEN or PAUSED, and cannot be claimed.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ReplayState(StrEnum):
    """The state of a replay; the values are those in the database and the API."""

    OPEN = "OPEN"
    STARTED = "STARTED"
    ONGOING = "ONGOING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ReplayEvent(StrEnum):
    """An event that may change the state of a replay."""

    RESTORE = "restore"
    CLAIM = "claim"
    TAKE_OVER = "take over"
    HEARTBEAT = "heartbeat"
    BEGIN = "begin"
    CHECKPOINT = "checkpoint"
    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


class IllegalTransition(Exception):
    """The event is not possible in this state."""

    def __init__(self, state: ReplayState, event: ReplayEvent) -> None:
        known = ", ".join(TRANSITIONS[state]) or "nothing, it is finished"
        super().__init__(f"replay is {state}; {event} is not possible, allowed is {known}")
        self.state = state
        self.event = event


TRANSITIONS: Final[Mapping[ReplayState, Mapping[ReplayEvent, ReplayState]]] = {
    ReplayState.OPEN: {
        # Its records are restored, or known to be missing.
        ReplayEvent.RESTORE: ReplayState.OPEN,
        ReplayEvent.CLAIM: ReplayState.STARTED,
        ReplayEvent.PAUSE: ReplayState.PAUSED,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.STARTED: {
        # The lease expired: another worker continues at the checkpoint.
        ReplayEvent.TAKE_OVER: ReplayState.STARTED,
        ReplayEvent.HEARTBEAT: ReplayState.STARTED,
        ReplayEvent.BEGIN: ReplayState.ONGOING,
        ReplayEvent.FAIL: ReplayState.FAILED,
        ReplayEvent.RELEASE: ReplayState.OPEN,
        ReplayEvent.PAUSE: ReplayState.PAUSED,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.ONGOING: {
        ReplayEvent.TAKE_OVER: ReplayState.ONGOING,
        ReplayEvent.HEARTBEAT: ReplayState.ONGOING,
        # After a takeover; delivered events stay below the checkpoint.
        ReplayEvent.BEGIN: ReplayState.ONGOING,
        ReplayEvent.CHECKPOINT: ReplayState.ONGOING,
        ReplayEvent.COMPLETE: ReplayState.COMPLETED,
        ReplayEvent.FAIL: ReplayState.FAILED,
        # OPEN means that no worker holds it; its checkpoint and counts are kept.
        ReplayEvent.RELEASE: ReplayState.OPEN,
        ReplayEvent.PAUSE: ReplayState.PAUSED,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.PAUSED: {
        # The last checkpoint of the worker that was stopped by it.
        ReplayEvent.CHECKPOINT: ReplayState.PAUSED,
        ReplayEvent.RESTORE: ReplayState.PAUSED,
        ReplayEvent.RESUME: ReplayState.OPEN,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.COMPLETED: {},
    ReplayState.FAILED: {
        # The cause is repaired: it continues at its checkpoint.
        ReplayEvent.RESUME: ReplayState.OPEN,
    },
    ReplayState.CANCELLED: {
        ReplayEvent.CHECKPOINT: ReplayState.CANCELLED,
    },
}

TERMINAL: Final = frozenset({ReplayState.COMPLETED, ReplayState.FAILED, ReplayState.CANCELLED})
"""States in which a replay is over. Only its owner can change that, by resuming a FAILED one."""

ACTIVE: Final = frozenset(ReplayState) - TERMINAL
"""States of replays that are not over; a webhook has at most one replay in them."""


def next_state(state: ReplayState, event: ReplayEvent) -> ReplayState:
    """The state that `event` leads to.

    Raises:
        IllegalTransition: the event is not possible in this state.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None


def moves(event: ReplayEvent) -> dict[ReplayState, ReplayState]:
    """Every state in which `event` is possible, with the state it leads to."""
    return {state: table[event] for state, table in TRANSITIONS.items() if event in table}
