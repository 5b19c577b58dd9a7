"""Control of a running replay: pause, resume, cancel, changes of its webhook."""

import asyncio
import logging
import time

import pytest
from sqlalchemy import update

from app.domain.endpoint_health import CONSECUTIVE_FAILURES_MIN
from app.domain.endpoint_options import EndpointOptions, Ordering
from app.domain.hours import HOUR_MS
from app.domain.model import Counts, WebhookStatus, Window
from app.domain.recovery import OutageRecord
from app.domain.states import ReplayState
from app.log.event import NewEvent
from app.store.tables import replays
from app.webhooks.signing import new_secret
from tests.integration.replay_workers.worker_bench import Bench
from tests.support.processes.waiting import until_async

EVENTS, RATE = 2_000, 40
"""A replay of 50 seconds that delivers few events. It reads its webhook every three seconds."""


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")


def test_a_paused_replay_sends_nothing_and_resumes_at_its_checkpoint(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        # No checkpoint but the last one; and the lease itself asks for no heartbeat that soon.
        bench.change(checkpoint_interval_s=3_600.0, lease_s=3_600.0, heartbeat_s=600.0)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 800))
        replay = bench.replay(webhook)
        bench.receiver.answer(204, delay_s=0.1)
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 50, "delivery has begun")
            bench.store.pause_replay(replay.id)
            await until_async(lambda: "stopped" in caplog.messages, "the worker let go")
            paused = bench.store.replay(replay.id)
            assert paused.state is ReplayState.PAUSED
            # Requests under way were answered, and what was answered is written down.
            assert paused.counts == Counts(delivered=len(bench.received))
            bench.receiver.answer(204)
            bench.store.resume_replay(replay.id)
            replay = await bench.finished(replay)
        assert caplog.messages.count("claimed") == 2
        assert "taken-over" not in caplog.messages
        assert replay.counts == Counts(delivered=800)
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in range(800))

    asyncio.run(scenario())


def test_a_cancelled_replay_sends_nothing_and_has_its_last_counts(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench.change(checkpoint_interval_s=3_600.0)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 5_000))
        replay = bench.replay(webhook)
        bench.receiver.answer(204, delay_s=0.05)
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 50, "delivery has begun")
            bench.store.cancel_replay(replay.id)
            await until_async(lambda: "stopped" in caplog.messages, "the worker let go")
            count = len(bench.received)
        # With the worker ended, nothing can be on its way.
        assert len(bench.received) == count < 5_000
        replay = bench.store.replay(replay.id)
        assert (replay.state, replay.counts) == (ReplayState.CANCELLED, Counts(delivered=count))

    asyncio.run(scenario())


@pytest.mark.parametrize("change", ["pause_replay", "cancel_replay"])
def test_a_cancellation_takes_effect_while_the_receiver_is_down(
    bench: Bench, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    async def scenario() -> None:
        bench.change(retry_base_s=3_600.0, retry_cap_s=3_600.0)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 10))
        replay = bench.replay(webhook)
        bench.receiver.answer(503)
        async with bench.worker():
            await until_async(
                lambda: len(bench.received) >= CONSECUTIVE_FAILURES_MIN, "every sender task waits"
            )
            getattr(bench.store, change)(replay.id)
            await until_async(lambda: "stopped" in caplog.messages, "the worker let go")

    asyncio.run(scenario())


def test_a_cancellation_takes_effect_under_a_low_rate_limit(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 1_000))
        replay = bench.replay(webhook, max_events_per_second=1)
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 1, "delivery has begun")
            bench.store.pause_replay(replay.id)
            await until_async(lambda: "stopped" in caplog.messages, "the worker let go")

    asyncio.run(scenario())


def test_disabling_a_webhook_fails_its_replay_with_the_reason(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, EVENTS))
        replay = bench.replay(webhook, max_events_per_second=RATE)
        async with bench.worker():
            await until_async(lambda: bench.received, "delivery has begun")
            bench.store.disable_webhook(webhook.id, "its owner wants it so")
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.FAILED
        assert replay.error == "the webhook is disabled: its owner wants it so"
        assert 1 <= replay.counts.delivered == len(bench.received) < EVENTS

    asyncio.run(scenario())


def test_a_replay_to_a_target_url_ignores_a_disabled_webhook(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        replay = bench.replay(webhook, target_url=f"{bench.receiver.url}/elsewhere")
        bench.store.disable_webhook(webhook.id, "its owner wants it so")
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=30)
        assert {received.path for received in bench.received} == {"/elsewhere"}
        assert {received.status for received in bench.received} == {204}  # signed as ever

    asyncio.run(scenario())


def test_a_replay_to_an_unverified_webhook_is_postponed(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        replay = bench.replay(webhook)
        moved = f"{bench.receiver.url}/moved"
        bench.store.update_webhook(webhook.id, url=moved)
        async with bench.worker():
            await until_async(
                lambda: bench.store.replay(replay.id).waiting_for is not None, "it was put off"
            )
            waiting = bench.store.replay(replay.id)
            assert waiting.state is ReplayState.OPEN
            assert waiting.waiting_for is not None
            assert waiting.waiting_for.startswith("the webhook is not validated yet")
            bench.store.enable_webhook(webhook.id, moved)
            replay = await bench.finished(replay)
        assert replay.waiting_for is None
        assert {received.path for received in bench.received} == {"/moved"}

    asyncio.run(scenario())


def test_a_rotated_secret_signs_requests_of_a_running_replay(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, EVENTS))
        replay = bench.replay(webhook, max_events_per_second=RATE)
        async with bench.worker():
            await until_async(lambda: bench.received, "delivery has begun")
            rotated = bench.store.rotate_secret(webhook.id, new_secret(), 3_600_000)
            await until_async(
                lambda: bench.received[-1].headers["webhook-signature"].count(" ") == 1,
                "both secrets sign",
            )
            assert bench.received[-1].status == 204  # the receiver still has the former
            bench.receiver.secret = rotated.secret
            count = len(bench.received)
            await until_async(lambda: len(bench.received) >= count + 5, "delivery continues")
            bench.store.cancel_replay(replay.id)
        assert {received.status for received in bench.received} == {204}

    asyncio.run(scenario())


def test_a_410_response_disables_the_webhook(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rewind.audit")

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 500))
        replay = bench.replay(webhook)
        bench.receiver.answer(410)
        async with bench.worker():
            replay = await bench.finished(replay)
        reason = "the receiver wants no more events: HTTP 410 Gone"
        assert (replay.state, replay.error) == (ReplayState.FAILED, reason)
        assert len(bench.received) <= 16
        webhook = bench.store.webhook(webhook.id)
        assert (webhook.status, webhook.status_reason) == (WebhookStatus.DISABLED, reason)
        (line,) = [record for record in caplog.records if record.name == "rewind.audit"]
        assert line.__dict__["target"] == webhook.id

    asyncio.run(scenario())


def test_an_ordered_webhook_is_disabled_when_its_receiver_fails_for_a_day_of_recovery(
    timed_bench: Bench,
) -> None:
    bench, origin = timed_bench, timed_bench.settings.origin

    async def scenario() -> None:
        webhook = await bench.webhook()
        strict = EndpointOptions(ordering=Ordering.STRICT)
        bench.store.update_webhook(webhook.id, change_options=lambda _: strict)
        begin_ms = time.time_ns() // 1_000_000
        await bench.publish(
            [
                NewEvent(webhook.id, f"evt_{number}", "test.happened", begin_ms + number, b"{}")
                for number in range(20)
            ],
            origin=origin,
        )
        record = OutageRecord(begin_ms, Window(begin_ms, begin_ms + 1_000))
        bench.store.save_recovery(webhook.id, record, origin=origin, is_recovered=True)
        replay = bench.store.start_recovery(webhook.id, origin=origin)
        assert replay is not None
        earlier = update(replays).values(created_ms=replays.c.created_ms - 25 * HOUR_MS)
        bench.store.database.write(lambda connection: connection.execute(earlier))
        bench.change(retry_attempts_max=2, retry_base_s=0.01, retry_cap_s=0.02)
        bench.receiver.answer(503)
        async with bench.worker():
            ended = await bench.finished(replay)
        assert (ended.state, ended.counts.failed) == (ReplayState.FAILED, 0)
        assert {each.event_id for each in bench.received} == {"evt_0"}
        disabled = bench.store.webhook(webhook.id)
        assert disabled.status is WebhookStatus.DISABLED
        assert "25 hours ago" in str(disabled.status_reason)
        # Enabled again, it gets all of them.
        assert bench.store.recoveries(origin=origin)[webhook.id].window.from_ms == begin_ms

    asyncio.run(scenario())


def test_a_410_response_of_a_target_url_disables_nothing(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 50))
        replay = bench.replay(webhook, target_url=f"{bench.receiver.url}/elsewhere")
        bench.receiver.answer(410)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.FAILED
        assert bench.store.webhook(webhook.id).status is WebhookStatus.ENABLED

    asyncio.run(scenario())
