"""Notifications of ended replays."""

import json
from dataclasses import replace

import pytest

from app.domain.model import Counts, Replay, Window
from app.domain.notices import notice_body, notice_id, pause_s
from app.domain.options import NoticeStyle, ReplayOptions, Source
from app.domain.states import ReplayState

DONE = Replay(
    origin="a",
    source=Source.LOG,
    id="rp_1",
    account_id="acc_1",
    webhook_id="wh_1",
    window=Window(1_795_000_000_000, 1_795_000_060_000),
    options=ReplayOptions(),
    retry_of=None,
    notice=NoticeStyle.REWIND,
    state=ReplayState.COMPLETED,
    lease_epoch=1,
    claims_without_progress=0,
    idle_ms=0,
    worker=None,
    offsets=None,
    checkpoint=None,
    counts=Counts(7, 2, 1),
    status_counts=None,
    error=None,
    waiting_for=None,
    awaits=None,
    created_ms=1_795_000_100_000,
    started_ms=1_795_000_101_000,
    heartbeat_ms=1_795_000_102_000,
    finished_ms=1_795_000_103_000,
)


def test_the_standard_body_has_all_members() -> None:
    assert json.loads(notice_body(DONE)) == {
        "type": "replay.completed",
        "timestamp": "2026-11-18T11:08:23.000Z",
        "data": {
            "replayId": "rp_1",
            "webhookId": "wh_1",
            "from": "2026-11-18T11:06:40.000Z",
            "to": "2026-11-18T11:07:40.000Z",
            "state": "COMPLETED",
            "result": "completed-with-failures",
            "counts": {"delivered": 7, "duplicates": 2, "failed": 1},
            "error": None,
        },
    }
    assert notice_id(DONE) == "rp_1-completed"


def test_a_failed_replay_has_its_error() -> None:
    failed = replace(DONE, state=ReplayState.FAILED, error="the receiver is gone")
    document = json.loads(notice_body(failed))
    assert (document["type"], document["data"]["error"]) == (
        "replay.failed",
        "the receiver is gone",
    )


def test_a_replay_that_fails_again_after_it_was_resumed_has_another_notice() -> None:
    failed = replace(DONE, state=ReplayState.FAILED)
    assert notice_id(failed) == "rp_1-failed-1"
    # Resuming it takes another claim, which raises the epoch.
    assert notice_id(replace(failed, lease_epoch=2)) == "rp_1-failed-2"


@pytest.mark.parametrize(
    ("state", "failed", "job_state"),
    [
        (ReplayState.COMPLETED, 0, "Complete"),
        (ReplayState.COMPLETED, 1, "Incomplete"),
        (ReplayState.FAILED, 0, "Incomplete"),
        (ReplayState.CANCELLED, 0, "Incomplete"),
    ],
)
def test_the_twitter_body_has_its_job_state(
    state: ReplayState, failed: int, job_state: str
) -> None:
    replay = replace(
        DONE, notice=NoticeStyle.TWITTER, state=state, counts=Counts(delivered=3, failed=failed)
    )
    descriptions = {
        "Complete": "Job completed successfully",
        "Incomplete": "Job failed to deliver all events, please retry your replay job",
    }
    assert json.loads(notice_body(replay)) == {
        "replay_job_status": {
            "webhook_id": "wh_1",
            "job_state": job_state,
            "job_state_description": descriptions[job_state],
            "job_id": "rp_1",
        }
    }


def test_four_attempts_are_made() -> None:
    assert [pause_s(attempt) for attempt in (1, 2, 3, 4)] == [3.0, 27.0, 242.0, None]
