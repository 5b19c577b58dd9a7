from dataclasses import replace

import pytest

from app.domain.model import Counts
from app.domain.replay_results import ReplayResult, result_of, state_label
from app.domain.states import ACTIVE, ReplayState
from tests.unit.app.domain.test_domain_notices import DONE


@pytest.mark.parametrize(
    ("state", "failed", "result", "label"),
    [
        (ReplayState.COMPLETED, 0, ReplayResult.SUCCEEDED, "COMPLETED"),
        (
            ReplayState.COMPLETED,
            240,
            ReplayResult.COMPLETED_WITH_FAILURES,
            "Completed with failures",
        ),
        (ReplayState.FAILED, 0, ReplayResult.FAILED, "FAILED"),
        (ReplayState.CANCELLED, 3, ReplayResult.CANCELLED, "CANCELLED"),
        *((state, 3, None, str(state)) for state in sorted(ACTIVE)),
    ],
)
def test_only_a_replay_that_delivered_everything_has_succeeded(
    state: ReplayState, failed: int, result: ReplayResult | None, label: str
) -> None:
    replay = replace(DONE, state=state, counts=Counts(0, 0, failed))
    assert (result_of(replay), state_label(replay)) == (result, label)
