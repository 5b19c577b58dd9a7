"""The result of a replay that is over: succeeded, with failures, failed or cancelled."""

from enum import StrEnum
from typing import Final

from app.domain.model import Replay
from app.domain.states import TERMINAL, ReplayState

COMPLETED_WITH_FAILURES_LABEL: Final = "Completed with failures"


class ReplayResult(StrEnum):
    """How a replay ended; the values are those in the API."""

    SUCCEEDED = "succeeded"
    """Every event was delivered."""

    COMPLETED_WITH_FAILURES = "completed-with-failures"
    """It reached its end, and some events are listed as failed."""

    FAILED = "failed"
    CANCELLED = "cancelled"


def result_of(replay: Replay) -> ReplayResult | None:
    """The result of a replay; None while it is not over."""
    if replay.state not in TERMINAL:
        return None
    if replay.state is ReplayState.FAILED:
        return ReplayResult.FAILED
    if replay.state is ReplayState.CANCELLED:
        return ReplayResult.CANCELLED
    failed = replay.counts.failed
    return ReplayResult.COMPLETED_WITH_FAILURES if failed else ReplayResult.SUCCEEDED


def state_label(replay: Replay) -> str:
    """The state as people read it."""
    if result_of(replay) is ReplayResult.COMPLETED_WITH_FAILURES:
        return COMPLETED_WITH_FAILURES_LABEL
    return str(replay.state)
