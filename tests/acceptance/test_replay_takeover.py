"""A replay ends well whatever befalls its worker or its receiver."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.windows import format_time
from tests.support.processes.waiting import until
from tests.support.service.worker_service import (
    EVENTS,
    HELD_S,
    IN_FLIGHT,
    LEASE_S,
    MINUTE_MS,
    SLOW_S,
    Job,
    Stage,
)

DAY_MS = 24 * 60 * MINUTE_MS
SOME = 150
"""Events that a receiver has when something happens: enough that checkpoints lie behind."""

SLOWER_S = 0.1
TAKEN_IN_TWO_S = 2 / SLOWER_S * IN_FLIGHT
"""The most that a receiver so slow can take in the time by which a worker has stopped. Events are
counted, and not seconds: a machine that is late is late with both."""

ON_MARIADB = pytest.mark.parametrize("database_url", ["mariadb"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""What workers do to each other is tested on both databases once, by the loss of a worker. The
store's own tests run all its transactions on both."""


@pytest.fixture
def stage(tmp_path: Path, database_url: str) -> Iterator[Stage]:
    with Stage(tmp_path, database_url) as stage:
        stage.receiver.answer(204, delay_s=SLOW_S)
        yield stage


def check_complete(stage: Stage, job: Job) -> None:
    """Every event of the window came, none that is not in it, and the counts add up."""
    assert (job["state"], job["error"]) == ("COMPLETED", None)
    assert sorted(set(stage.receiver.taken)) == stage.expected
    assert stage.receiver.problems == []
    replayed = {each.replay_id for each in stage.receiver.webhooks if not each.is_ping}
    assert replayed == {job["id"]}
    assert job["counts"] == {"delivered": EVENTS, "duplicates": stage.copies, "failed": 0}
    assert (job["checkpoint"], job["progress"]) == (job["endOffset"], 1)
    assert stage.failures(job["id"]) == []


def test_a_job_is_finished_by_another_worker_when_its_own_is_killed(stage: Stage) -> None:
    stage.worker()
    stage.worker()
    replay_id = stage.replay()
    holder = stage.holder_under_way(replay_id, SOME)
    other = stage.other_than(holder)
    holder.kill()
    stage.receiver.answer(204, delay_s=SLOW_S)
    sent, checked = len(stage.receiver.taken), stage.job(replay_id)["counts"]["delivered"]

    job = stage.finished(replay_id)
    check_complete(stage, job)
    assert job["leaseEpoch"] == 2
    assert stage.holder(replay_id) is other
    assert f'"event": "taken-over", "replay": "{replay_id}"' in other.output
    # What came twice was sent since the last checkpoint, or on its way, and no more.
    assert len(stage.receiver.taken) - EVENTS <= sent - checked + IN_FLIGHT


@ON_MARIADB
def test_a_stopped_worker_that_wakes_after_its_lease_was_taken_lets_go(
    stage: Stage,
) -> None:
    stage.worker()
    stage.worker()
    replay_id = stage.replay()
    holder = stage.holder_under_way(replay_id, SOME)
    stage.pause(holder)
    stage.receiver.answer(204, delay_s=SLOW_S)

    job = stage.finished(replay_id)
    check_complete(stage, job)
    assert job["leaseEpoch"] == 2
    assert stage.holder(replay_id) is stage.other_than(holder)

    # It had requests ready to go; when its process has ended, none of them can come any more. One
    # at most may have been stopped between its last look at the lease and the socket.
    came = len(stage.receiver.taken)
    holder.resume()
    holder.until_says('"event": "lost"')
    assert holder.stop() == 0
    assert len(stage.receiver.taken) - came <= 1
    assert stage.job(replay_id) == job


@pytest.mark.long
@ON_MARIADB
def test_a_paused_worker_resumes_if_no_other_worker_took_over(stage: Stage) -> None:
    holder = stage.worker()
    replay_id = stage.replay()
    stage.until_taken(SOME)
    stage.receiver.answer(204, delay_s=HELD_S)
    stage.pause(holder)
    stage.receiver.answer(204, delay_s=SLOW_S)
    # The lease expires while no other worker runs; the worker must renew it after it wakes.
    time.sleep(LEASE_S)
    holder.resume()
    check_complete(stage, stage.finished(replay_id))


@ON_SQLITE
def test_a_worker_that_stops_releases_its_replay_to_another(stage: Stage) -> None:
    # With a lease this long a job that had to wait for it would not be finished in time.
    leases = {"lease_s": "3600", "heartbeat_s": "600"}
    stage.worker(**leases)
    stage.worker(**leases)
    replay_id = stage.replay()
    holder = stage.holder_under_way(replay_id, SOME)
    assert holder.stop() == 0
    stage.receiver.answer(204, delay_s=SLOW_S)

    job = stage.finished(replay_id)
    check_complete(stage, job)
    assert job["leaseEpoch"] == 2
    assert f'"event": "released", "replay": "{replay_id}"' in holder.output
    # A worker that ends in good order has written down all that it sent.
    assert sorted(stage.receiver.taken) == stage.expected


@pytest.mark.long
@ON_MARIADB
def test_a_receiver_that_is_down_for_a_while_gets_everything(stage: Stage) -> None:
    stage.worker(retry_attempts_max="100")
    replay_id = stage.replay()
    stage.until_taken(SOME)
    stage.receiver.go_down()
    # The outage itself: longer than most waits.
    time.sleep(1.0)
    assert stage.job(replay_id)["state"] == "ONGOING"
    stage.receiver.come_up()
    check_complete(stage, stage.finished(replay_id))


@pytest.mark.long
@ON_MARIADB
def test_what_a_receiver_refuses_for_too_long_is_listed_exactly(stage: Stage) -> None:
    stage.worker(retry_attempts_max="2")
    replay_id = stage.replay()
    stage.until_taken(SOME)
    stage.receiver.answer(503, delay_s=SLOW_S)
    refused = len(stage.receiver.webhooks) + SOME
    until(lambda: len(stage.receiver.webhooks) >= refused, "many were refused")
    stage.receiver.answer(204, delay_s=SLOW_S)

    job = stage.finished(replay_id)
    assert job["state"] == "COMPLETED"
    failures = stage.failures(replay_id)
    failed = {failure["eventId"] for failure in failures}
    assert failed
    assert failed.isdisjoint(stage.receiver.taken)
    assert sorted(failed.union(stage.receiver.taken)) == stage.expected
    assert job["counts"] == {
        "delivered": EVENTS - len(failed),
        "duplicates": stage.copies,
        "failed": len(failures),
    }
    assert {failure["status"] for failure in failures} == {503}
    offsets = [failure["offset"] for failure in failures]
    assert offsets == sorted(set(offsets))


@ON_SQLITE
def test_a_cancelled_replay_stops_within_two_seconds(stage: Stage) -> None:
    # However rarely its lease needs a heartbeat.
    worker = stage.worker(lease_s="3600", heartbeat_s="600")
    replay_id = stage.replay()
    stage.until_taken(SOME)
    stage.receiver.answer(204, delay_s=SLOWER_S)
    cancelled = stage.api.post(f"/replays/{replay_id}/cancel")
    before = len(stage.receiver.taken)
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "CANCELLED")
    worker.until_says('"event": "stopped"')
    assert worker.stop() == 0

    assert len(stage.receiver.taken) - before <= TAKEN_IN_TWO_S
    assert len(set(stage.receiver.taken)) < EVENTS
    assert stage.job(replay_id)["state"] == "CANCELLED"
    again = stage.api.post(f"/replays/{replay_id}/cancel")
    assert again.status_code == 409
    # The webhook is free for another one.
    assert stage.ask_replay().status_code == 202


@ON_MARIADB
def test_a_paused_replay_stops_within_two_seconds_and_continues_when_resumed(stage: Stage) -> None:
    worker = stage.worker(lease_s="3600", heartbeat_s="600")
    replay_id = stage.replay()
    stage.until_taken(SOME)
    stage.receiver.answer(204, delay_s=SLOWER_S)
    paused = stage.api.post(f"/replays/{replay_id}/pause")
    before = len(stage.receiver.taken)
    assert (paused.status_code, paused.json()["state"]) == (200, "PAUSED")
    worker.until_says('"event": "stopped"')
    taken = len(stage.receiver.taken)
    assert taken - before <= TAKEN_IN_TWO_S
    # Its last word: what was under way is answered and counted.
    assert stage.job(replay_id)["counts"]["delivered"] == taken < EVENTS

    stage.receiver.answer(204, delay_s=SLOW_S)
    resumed = stage.api.post(f"/replays/{replay_id}/resume")
    assert (resumed.status_code, resumed.json()["state"]) == (200, "OPEN")
    check_complete(stage, stage.finished(replay_id))
    assert sorted(stage.receiver.taken) == stage.expected


@ON_MARIADB
def test_a_webhook_has_one_active_replay(stage: Stage) -> None:
    first = stage.ask_replay()
    assert first.status_code == 202
    assert first.headers["location"] == f"/replays/{first.json()['id']}"
    second = stage.ask_replay()
    assert second.status_code == 409
    assert second.headers["content-type"] == "application/problem+json"
    assert second.json()["replayId"] == first.json()["id"]

    stage.receiver.answer(204)
    stage.worker()
    check_complete(stage, stage.finished(first.json()["id"]))
    assert stage.ask_replay().status_code == 202


@ON_MARIADB
def test_a_window_that_cannot_be_replayed_is_refused_with_what_can(stage: Stage) -> None:
    now_ms = time.time_ns() // 1_000_000

    def refused(start_ms: int, end_ms: int) -> tuple[str, str, str]:
        answer = stage.ask_replay(start=format_time(start_ms), end=format_time(end_ms))
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        return problem["field"], problem["value"], problem["allowed"]

    hour_ago_ms, hour_ahead_ms = now_ms - 60 * MINUTE_MS, now_ms + 60 * MINUTE_MS
    field, value, allowed = refused(hour_ago_ms, hour_ahead_ms)
    assert (field, value) == ("to", format_time(hour_ahead_ms))
    assert allowed.startswith("at most the present, ")

    for end_ms in (hour_ago_ms, hour_ago_ms - MINUTE_MS):
        field, value, allowed = refused(hour_ago_ms, end_ms)
        assert (field, value) == ("to", format_time(end_ms))
        assert allowed == f"a time after from, {format_time(hour_ago_ms)}"

    field, value, allowed = refused(now_ms - 6 * DAY_MS, now_ms - 5 * DAY_MS + MINUTE_MS)
    assert (field, value) == ("from", format_time(now_ms - 6 * DAY_MS))
    assert allowed.startswith("at least ")

    field, value, allowed = refused(now_ms - 6 * DAY_MS, now_ms - MINUTE_MS)
    assert (field, value) == ("to", format_time(now_ms - MINUTE_MS))
    assert allowed.startswith("at most 5 days after from, ")

    unknown = stage.ask_replay(webhookId="wh_unknown")
    assert unknown.status_code == 404
    assert stage.api.get("/replays").json()["items"] == []
