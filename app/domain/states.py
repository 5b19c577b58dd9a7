"""The life of a replay: one table of transitions, from which the store derives its SQL.

OPEN ──claim──> STARTED ──begin──> ONGOING ──complete──> COMPLETED
 ^ ^               │                  │
 │ └────release────┴──────────────────┘        any of the three ──pause───> PAUSED
 └──resume── PAUSED                            these and PAUSED ──cancel──> CANCELLED
                                                STARTED, ONGOING ──fail──> FAILED

A worker that holds the job lives in STARTED and ONGOING; a job without a sign of life is taken
over where it stands. A job is PAUSED or CANCELLED at once: its worker learns so by its next write,
and may then store, one last time, how far it came. One whose records have to be brought back first
is OPEN meanwhile, or PAUSED, and nobody can claim it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ReplayState(StrEnum):
    """Where a replay stands; the values are what the database and the API show."""

    OPEN = "OPEN"
    STARTED = "STARTED"
    ONGOING = "ONGOING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ReplayEvent(StrEnum):
    """What may happen to a replay."""

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
    """A replay in this state cannot have this event."""

    def __init__(self, state: ReplayState, event: ReplayEvent) -> None:
        known = ", ".join(TRANSITIONS[state]) or "nothing, it is over"
        super().__init__(f"replay is {state}; {event} is not possible, allowed is {known}")
        self.state = state
        self.event = event


TRANSITIONS: Final[Mapping[ReplayState, Mapping[ReplayEvent, ReplayState]]] = {
    ReplayState.OPEN: {
        # What it is to bring is there, or is known not to be.
        ReplayEvent.RESTORE: ReplayState.OPEN,
        ReplayEvent.CLAIM: ReplayState.STARTED,
        ReplayEvent.PAUSE: ReplayState.PAUSED,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.STARTED: {
        # The holder's lease ran out: another worker goes on where the job stands.
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
        # Who took the job over begins again; what was delivered stays below the checkpoint.
        ReplayEvent.BEGIN: ReplayState.ONGOING,
        ReplayEvent.CHECKPOINT: ReplayState.ONGOING,
        ReplayEvent.COMPLETE: ReplayState.COMPLETED,
        ReplayEvent.FAIL: ReplayState.FAILED,
        # OPEN means that nobody works on it; its checkpoint and counts are kept.
        ReplayEvent.RELEASE: ReplayState.OPEN,
        ReplayEvent.PAUSE: ReplayState.PAUSED,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.PAUSED: {
        # The last word of the worker that was stopped by it.
        ReplayEvent.CHECKPOINT: ReplayState.PAUSED,
        ReplayEvent.RESTORE: ReplayState.PAUSED,
        ReplayEvent.RESUME: ReplayState.OPEN,
        ReplayEvent.CANCEL: ReplayState.CANCELLED,
    },
    ReplayState.COMPLETED: {},
    ReplayState.FAILED: {},
    ReplayState.CANCELLED: {
        ReplayEvent.CHECKPOINT: ReplayState.CANCELLED,
    },
}

TERMINAL: Final = frozenset(
    state for state, moves in TRANSITIONS.items() if set(moves.values()) <= {state}
)
"""States that nothing leads out of."""

ACTIVE: Final = frozenset(ReplayState) - TERMINAL
"""States that something can still happen to; a webhook has at most one replay in them."""


def next_state(state: ReplayState, event: ReplayEvent) -> ReplayState:
    """The state that `event` leads to.

    Raises:
        IllegalTransition: the table has no such move.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None


def moves(event: ReplayEvent) -> dict[ReplayState, ReplayState]:
    """Every state that knows `event`, with the state it leads to."""
    return {state: table[event] for state, table in TRANSITIONS.items() if event in table}
