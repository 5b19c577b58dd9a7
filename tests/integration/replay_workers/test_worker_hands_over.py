"""A replay that changes workers: takeover, stop, lost lease, release."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from app.domain.endpoint_health import CONSECUTIVE_FAILURES_MIN
from app.domain.model import Counts, OffsetRange, Window
from app.domain.states import ReplayState
from app.replay_workers.job import CLAIMS_WITHOUT_PROGRESS_MAX
from app.replay_workers.queue import EVENTS_MAX
from app.webhooks.receiver import ReceivedWebhook
from tests.integration.replay_workers.worker_bench import BEGIN_MS, Bench
from tests.support.processes.waiting import until_async


def test_a_takeover_resumes_at_the_checkpoint(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        events = bench.events(webhook.id, 0, 100)
        # The second half repeats some of what lies below the checkpoint.
        await bench.publish([*events[:60], *events[20:30], *events[60:]])
        replay = bench.replay(webhook, checkpoint=40)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in range(40, 100))
        assert replay.counts == Counts(delivered=60, duplicates=10)

    asyncio.run(scenario())


def test_a_stopped_worker_releases_its_replay_and_another_finishes_it(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 400))
        replay = bench.replay(webhook)
        bench.receiver.answer(204, delay_s=0.02)
        async with bench.worker() as stopping:
            await until_async(lambda: len(bench.received) >= 50, "delivery has begun")
            stopping.set()
        given_back = bench.store.replay(replay.id)
        assert given_back.state is ReplayState.OPEN
        # Requests under way were waited for and count, so nothing is sent twice.
        assert given_back.checkpoint == given_back.counts.delivered == len(bench.received)
        await bench.receiver.start()
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=400)
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in range(400))

    asyncio.run(scenario())


def test_a_worker_that_waits_for_a_retry_stops_at_once(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_base_s=3_600.0, retry_cap_s=3_600.0)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 100))
        replay = bench.replay(webhook)
        bench.receiver.answer(503)
        async with bench.worker() as stopping:
            await until_async(
                lambda: len(bench.received) >= CONSECUTIVE_FAILURES_MIN, "every sender task waits"
            )
            stopping.set()
        assert bench.store.replay(replay.id).state is ReplayState.OPEN

    asyncio.run(scenario())


def test_a_worker_whose_replay_was_taken_over_sends_nothing_more(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        # Between two heartbeats, which are a second apart at most, the lease ends; and this worker
        # runs no second replay. So another worker gets its turn.
        bench.change(
            lease_s=0.5,
            heartbeat_s=3.0,
            checkpoint_interval_s=3_600.0,
            jobs_per_worker=1,
            waiting_replays_per_worker=0,
        )
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 10_000))
        replay = bench.replay(webhook)
        bench.receiver.answer(204, delay_s=0.02)
        async with bench.worker() as stopping:
            await until_async(lambda: len(bench.received) >= 16, "delivery has begun")
            await until_async(
                lambda: bench.store.claim("another worker", 60.0, bench.settings.origin),
                "it was taken over",
            )
            count = len(bench.received)
            await until_async(lambda: "lost" in caplog.messages, "the worker ended the job")
            # What had left before the lease ended may still arrive.
            assert len(bench.received) <= count + bench.settings.max_in_flight
            stopping.set()
        taken_over = bench.store.replay(replay.id)
        assert (taken_over.worker, taken_over.counts) == ("another worker", Counts())

    asyncio.run(scenario())


def test_while_the_database_is_frozen_a_bounded_number_of_events_is_delivered(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.replay_workers.checkpoints.UNSTORED_S_MAX", 0.5)
    count = 2 * EVENTS_MAX

    def delivered() -> list[int]:
        return [each["n"] for webhook in bench.received for each in json.loads(webhook.body)]

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, count))
        replay = bench.replay(webhook, batch_size=100)
        with closing(sqlite3.connect(bench.settings.database.removeprefix("sqlite:///"))) as lock:
            # From the first request on, another process holds the lock of all writers.
            lock.isolation_level = None

            def freeze(_: ReceivedWebhook) -> None:
                if not lock.in_transaction:
                    lock.execute("BEGIN IMMEDIATE")

            bench.on_webhook = freeze
            async with bench.worker():
                await until_async(
                    lambda: "checkpoint-overdue" in caplog.messages or len(delivered()) == count,
                    "deliveries wait for the checkpoint",
                )
                stored = bench.store.replay(replay.id).checkpoint
                assert stored is not None
                assert len([n for n in delivered() if n >= stored]) <= EVENTS_MAX
                bench.on_webhook = lambda _: None
                lock.execute("ROLLBACK")
                replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=count)
        assert sorted(delivered()) == list(range(count))

    asyncio.run(scenario())


def test_a_replay_without_progress_over_many_claims_fails(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 10))
        replay = bench.replay(webhook)
        for _ in range(CLAIMS_WITHOUT_PROGRESS_MAX):
            # The lease of a worker that dies has ended at once.
            assert bench.store.claim("a worker that dies", -1.0) is not None
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.FAILED
        assert replay.error == f"no progress after {CLAIMS_WITHOUT_PROGRESS_MAX} consecutive claims"
        assert bench.received == []

    asyncio.run(scenario())


def test_a_replay_with_many_claims_and_progress_continues(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 100))
        replay = bench.replay(webhook)
        for _ in range(2 * CLAIMS_WITHOUT_PROGRESS_MAX):
            claim = bench.store.claim("a worker that shuts down", 30.0)
            assert claim is not None
            bench.store.release(claim.lease)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=100)

    asyncio.run(scenario())


def test_an_unexpected_error_keeps_the_replay_until_its_lease_expires(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench.change(lease_s=0.5)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 10))
        replay = bench.new_replay(webhook, Window(BEGIN_MS, BEGIN_MS + 10))
        claim = bench.store.claim("an earlier worker", 30.0)
        assert claim is not None
        # No partition has such a number: the client cannot even be asked for it.
        assert bench.store.begin_delivery(claim.lease, OffsetRange(2**40, 0, 10))
        assert bench.store.release(claim.lease)
        async with bench.worker():
            await until_async(lambda: caplog.messages.count("error") >= 2, "it was claimed twice")
        assert "Traceback" in caplog.text
        left = bench.store.replay(replay.id)
        assert (left.state, left.error) == (ReplayState.ONGOING, None)
        assert left.claims_without_progress >= 2

    asyncio.run(scenario())


def test_a_failing_replay_does_not_affect_others(bench: Bench) -> None:
    async def scenario() -> None:
        good, bad = await bench.webhook(), bench.store_webhook("http://127.0.0.1:1/unreachable")
        await bench.publish([*bench.events(bad.id, 0, 50), *bench.events(good.id, 0, 500)])
        replays = [bench.replay(bad), bench.replay(good)]
        async with bench.worker():
            bad_end, good_end = [await bench.finished(replay) for replay in replays]
        assert good_end.counts == Counts(delivered=500)
        assert bad_end.counts == Counts(failed=50)
        assert bad_end.state is ReplayState.COMPLETED

    asyncio.run(scenario())
