from dataclasses import replace

import pytest

from app.domain.model import Counts, OffsetRange, Replay, Window
from app.domain.options import NoticeStyle, ReplayOptions, Source
from app.domain.progress import Progress, progress
from app.domain.states import ReplayState

STARTED_MS = 1_000_000

ONGOING = Replay(
    origin="a",
    source=Source.LOG,
    id="rpl_1",
    account_id="acc_default",
    webhook_id="wh_1",
    window=Window(0, 1),
    options=ReplayOptions(),
    retry_of=None,
    notice=NoticeStyle.REWIND,
    state=ReplayState.ONGOING,
    lease_epoch=1,
    claims_without_progress=0,
    worker="worker-1",
    offsets=OffsetRange(partition=3, start=100, end=500),
    checkpoint=200,
    counts=Counts(delivered=40, duplicates=7, failed=3),
    status_counts=None,
    error=None,
    waiting_for=None,
    awaits=None,
    idle_ms=0,
    created_ms=0,
    started_ms=STARTED_MS,
    heartbeat_ms=STARTED_MS,
    finished_ms=None,
)


def test_a_quarter_done_in_ten_seconds_leaves_thirty() -> None:
    # 100 of 400 offsets and 50 events in 10 s.
    assert progress(ONGOING, STARTED_MS + 10_000) == Progress(0.25, 5.0, 30.0)


def test_an_open_replay_has_neither_rate_nor_eta() -> None:
    replay = replace(
        ONGOING,
        state=ReplayState.OPEN,
        offsets=None,
        checkpoint=None,
        counts=Counts(),
        started_ms=None,
    )
    assert progress(replay, STARTED_MS) == Progress(0.0, None, None)


@pytest.mark.parametrize("state", [ReplayState.OPEN, ReplayState.PAUSED])
def test_a_replay_without_a_worker_has_share_and_rate_but_no_eta(
    state: ReplayState,
) -> None:
    replay = replace(ONGOING, state=state, heartbeat_ms=STARTED_MS + 10_000)
    assert progress(replay, STARTED_MS + 3_600_000) == Progress(0.25, 5.0, None)


def test_a_pause_does_not_lower_the_rate() -> None:
    # An hour's pause, and then as if it had not been.
    replay = replace(ONGOING, idle_ms=3_600_000)
    assert progress(replay, STARTED_MS + 3_610_000) == Progress(0.25, 5.0, 30.0)


def test_there_is_no_eta_before_the_first_checkpoint() -> None:
    replay = replace(ONGOING, checkpoint=None, counts=Counts())
    assert progress(replay, STARTED_MS + 10_000) == Progress(0.0, None, None)


def test_a_finished_replay_keeps_its_rate() -> None:
    replay = replace(
        ONGOING, state=ReplayState.COMPLETED, checkpoint=500, finished_ms=STARTED_MS + 5_000
    )
    assert progress(replay, STARTED_MS + 3_600_000) == Progress(1.0, 10.0, None)


def test_a_cancelled_replay_keeps_its_share() -> None:
    replay = replace(ONGOING, state=ReplayState.CANCELLED, finished_ms=STARTED_MS + 5_000)
    assert progress(replay, STARTED_MS + 6_000) == Progress(0.25, 10.0, None)


@pytest.mark.parametrize("state", [ReplayState.ONGOING, ReplayState.COMPLETED])
def test_an_empty_range_has_a_share_of_one(state: ReplayState) -> None:
    replay = replace(
        ONGOING, state=state, offsets=OffsetRange(3, 100, 100), checkpoint=100, counts=Counts()
    )
    eta_s = 0.0 if state is ReplayState.ONGOING else None
    assert progress(replay, STARTED_MS + 1) == Progress(1.0, None, eta_s)


def test_a_start_in_the_future_yields_no_rate() -> None:
    assert progress(ONGOING, STARTED_MS - 50).rate_events_s is None
