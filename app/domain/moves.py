"""The history of a replay: its state changes, with actor, time and reason."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.states import ReplayEvent, ReplayState


class MoveEvent(StrEnum):
    """The events in the history: creation, and each `ReplayEvent` except periodic ones."""

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
    """One entry of a replay's history.

    `state` is the new state, `lease_epoch` the number of claims so far. `actor` is a worker, the id
    of a developer's API key, or `operator`; None if unknown. `reason` says what a released replay
    waits for, why it failed, or which worker's lease had expired before a takeover.
    """

    event: MoveEvent
    state: ReplayState
    lease_epoch: int
    actor: str | None
    reason: str | None
    at_ms: int
