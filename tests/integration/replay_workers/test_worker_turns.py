"""Accounts share a worker: none holds up the replays of another."""

import asyncio

import pytest

from app.domain.model import Counts
from app.domain.states import ReplayState
from tests.integration.replay_workers.worker_bench import Bench
from tests.support.processes.waiting import until_async

OTHER = "other"


def test_replays_that_wait_most_of_their_time_take_no_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.domain.turns.WINDOW_S", 0.1)

    async def scenario() -> None:
        bench.change(jobs_per_worker=2)
        url = (await bench.webhook()).url
        bench.receiver.secret = None
        slow = [bench.store_webhook(url) for _ in range(2)]
        down = bench.store_webhook("http://127.0.0.1:1/unreachable")
        quick = bench.store_webhook(url, OTHER)
        for webhook in (*slow, down):
            await bench.publish(bench.events(webhook.id, 0, 200))
        await bench.publish(bench.events(quick.id, 0, 5))
        bench.change(retry_base_s=60.0, retry_cap_s=60.0)
        held = [bench.replay(webhook, max_events_per_second=1) for webhook in slow]
        held.append(bench.replay(down))
        async with bench.worker():
            await until_async(
                lambda: all(
                    bench.store.replay(each.id).state is ReplayState.ONGOING for each in held
                ),
                "three run in two slots",
            )
            epochs = [bench.store.replay(each.id).lease_epoch for each in held]
            end = await bench.finished(bench.replay(quick))
            assert end.counts == Counts(delivered=5)
            # None of them gave way.
            assert [bench.store.replay(each.id).lease_epoch for each in held] == epochs

    asyncio.run(scenario())


def test_a_long_replay_gives_way_and_continues(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.domain.turns.SHORT_TURN_S", 0.05)
    monkeypatch.setattr("app.domain.turns.TURN_PER_START", 0)

    async def scenario() -> None:
        bench.change(jobs_per_worker=1)
        long = await bench.webhook()
        bench.receiver.secret = None
        quick = bench.store_webhook(long.url, OTHER)
        await bench.publish(bench.events(long.id, 0, 800))
        await bench.publish(bench.events(quick.id, 0, 5))
        # Accounts are claimed by id: that of the long one comes first.
        first = bench.replay(long, max_events_per_second=400)
        second = bench.replay(quick)
        async with bench.worker():
            ends = [await bench.finished(replay) for replay in (second, first)]
        assert [end.counts for end in ends] == [Counts(delivered=5), Counts(delivered=800)]
        assert len(bench.received) == 805
        assert "other replays have their turn" in [
            move.reason for move in bench.store.moves(first.id)
        ]
        assert bench.metrics.registry.get_sample_value(
            "rewind_worker_jobs_total", {"how": "yielded"}
        )

    asyncio.run(scenario())
