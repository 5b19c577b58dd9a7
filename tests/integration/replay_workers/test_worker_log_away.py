"""An unavailable log: replays are postponed and delay no others."""

import asyncio
import logging
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from app.domain.model import Counts, Window
from app.domain.options import Only
from app.domain.states import ReplayState
from app.log.topics import DELIVERY_OUTCOMES, ensure_topics
from tests.integration.replay_workers.worker_bench import BEGIN_MS, PARTITIONS, Bench
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S, until_async

WINDOW = Window(BEGIN_MS, BEGIN_MS + 1_000_000)


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")


def test_a_replay_is_postponed_while_the_log_is_unavailable(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        # No offsets are stored yet, and no broker is reachable to look them up.
        replay = bench.new_replay(webhook, WINDOW)
        bench.bootstrap_servers = "127.0.0.1:1"
        async with bench.worker():
            await until_async(
                lambda: caplog.messages.count("postponed") >= 2, "it was put off twice"
            )
        waiting = bench.store.replay(replay.id)
        assert (waiting.state, waiting.error) == (ReplayState.OPEN, None)
        assert waiting.waiting_for is not None
        assert waiting.waiting_for.startswith("the log: topic delivery_log: ")
        # However often it was claimed, none of that was its fault.
        assert waiting.claims_without_progress == 0
        assert "Traceback" not in caplog.text

    asyncio.run(scenario())


def test_postponed_replays_take_no_slots_of_others(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench.change(jobs_per_worker=1)
        waiting = [bench.new_replay(bench.store_webhook("http://127.0.0.1:1/"), WINDOW)]
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 50))
        # Its offsets are known: it needs no look-up, and the reader finds its broker.
        replay = bench.replay(webhook)
        bench.bootstrap_servers = "127.0.0.1:1"
        async with bench.worker():
            done = await bench.finished(replay)
            await until_async(lambda: "postponed" in caplog.messages, "the other was put off")
        assert done.counts == Counts(delivered=50)
        assert bench.store.replay(waiting[0].id).state is ReplayState.OPEN

    asyncio.run(scenario())


def test_an_outage_of_the_log_during_a_replay_loses_no_event(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve()
        servers = broker.bootstrap_servers
        ensure_topics(servers, partitions=PARTITIONS, retention_ms=86_400_000)
        bench.bootstrap_servers = servers
        bench.change(bootstrap_servers=servers)

        async def scenario() -> None:
            webhook = await bench.webhook()
            # Its checkpoint is far from the end: the rest is read from the broker after the outage.
            events = bench.events(webhook.id, 0, 1_500)
            await bench.publish(events)
            replay = bench.new_replay(webhook, WINDOW)
            bench.receiver.answer(204, delay_s=0.1)
            async with bench.worker():
                await until_async(lambda: len(bench.received) >= 100, "delivery has begun")
                bench.store.pause_replay(replay.id)
                await until_async(lambda: "stopped" in caplog.messages, "the worker let go")
                await asyncio.to_thread(broker.kill)
                bench.store.resume_replay(replay.id)
                await until_async(lambda: "postponed" in caplog.messages, "it was put off")
                waiting = bench.store.replay(replay.id)
                assert (waiting.state, waiting.error) == (ReplayState.OPEN, None)
                await asyncio.to_thread(broker.serve)
                bench.receiver.answer(204)
                replay = await bench.finished(replay)
            assert replay.state is ReplayState.COMPLETED
            assert replay.counts == Counts(delivered=1_500)
            assert sorted(bench.event_ids) == sorted(event.event_id for event in events)

        asyncio.run(scenario())


def test_without_a_topic_of_outcomes_everything_is_delivered(timed_bench: Bench) -> None:
    bench = timed_bench
    admin = AdminClient({"bootstrap.servers": bench.bootstrap_servers})
    admin.delete_topics([DELIVERY_OUTCOMES])[DELIVERY_OUTCOMES].result(DEADLINE_S)

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 20))
        replay = bench.replay(webhook, only=Only.FAILED)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=20)

    asyncio.run(scenario())
