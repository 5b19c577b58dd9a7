"""What happened to a replay, as people look at it: who moved it where, when, and why."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.states import ReplayEvent, ReplayState


class MoveEvent(StrEnum):
    """What is noted: that it was asked for, and each `ReplayEvent` that is no sign of life."""

    CREATE = "create"
    RESTORE = ReplayEvent.RESTORE.value
    CLAIM = ReplayEvent.CLAIM.value
    TAKE_OVER = ReplayEvent.TAKE_OVER.value
    BEGIN = ReplayEvent.BEGIN.value
    COMPLETE = ReplayEvent.COMPLETE.value
    FAIL = ReplayEvent.FAIL.value
    RELEASE = ReplayEvent.RELEASE.value
    PAUSE = ReplayEvent.PAUSE.value
    RESUME = ReplayEvent.RESUME.value
    CANCEL = ReplayEvent.CANCEL.value


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that happened to a replay.

    `state` is where it led to, `lease_epoch` the number of the last claim by then. `actor` is the
    worker, or the id of the key that asked; None where nobody is told. `reason` says in words what
    a replay that was given back waits for, why it failed, whose silence led to a take-over.
    """

    event: MoveEvent
    state: ReplayState
    lease_epoch: int
    actor: str | None
    reason: str | None
    at_ms: int
