"""What a worker leaves behind for people to look at: moves, samples, answers, failures."""

import asyncio

from app.domain.endpoint_options import EndpointOptions
from app.domain.model import Counts, Failure, Replay
from app.domain.moves import MoveEvent
from app.domain.states import ReplayState
from tests.integration.replay_workers.worker_bench import Bench
from tests.support.processes.waiting import until_async


def moves(bench: Bench, replay: Replay) -> list[tuple[MoveEvent, str | None]]:
    return [(move.event, move.reason) for move in bench.store.moves(replay.id)]


def test_answers_add_up_to_the_counts_over_several_workers(bench: Bench) -> None:
    def judge(body: bytes) -> int:
        return (204, 200, 400, 202)[int(body.removeprefix(b'{"n": ')[:-1]) % 4]

    async def scenario() -> None:
        bench.change(retry_attempts_max=1)
        webhook = await bench.webhook()
        bench.receiver.judge = judge
        events = bench.events(webhook.id, 0, 399)
        await bench.publish([*events, *events[:10]])
        replay = bench.replay(webhook, max_in_flight=4, max_events_per_second=400)
        async with bench.worker() as stopping:
            await until_async(lambda: len(bench.received) >= 50, "delivery has begun")
            stopping.set()
        half_way = bench.store.replay(replay.id)
        assert half_way.state is ReplayState.OPEN
        assert half_way.status_counts is not None
        assert sum(half_way.status_counts.values()) == half_way.counts.delivered + (
            half_way.counts.failed
        )
        await bench.receiver.start()
        async with bench.worker():
            done = await bench.finished(replay)
        assert done.counts == Counts(delivered=299, duplicates=10, failed=100)
        assert done.status_counts == {"204": 100, "200": 100, "400": 100, "202": 99}
        assert moves(bench, replay)[-5:] == [
            (MoveEvent.BEGIN, None),
            (MoveEvent.RELEASE, None),
            (MoveEvent.CLAIM, None),
            (MoveEvent.BEGIN, None),
            (MoveEvent.COMPLETE, None),
        ]

    asyncio.run(scenario())


def test_a_batch_that_is_parted_is_counted_by_its_parts(bench: Bench) -> None:
    def judge(body: bytes) -> int:
        if body.count(b"{") > 4:
            return 413
        return 400 if b'"n": 6}' in body else 201

    async def scenario() -> None:
        bench.change(retry_attempts_max=1)
        webhook = await bench.webhook()
        bench.receiver.judge = judge
        await bench.publish(bench.events(webhook.id, 0, 16))
        replay = bench.replay(webhook, batch_size=16, max_in_flight=1)
        async with bench.worker():
            done = await bench.finished(replay)
        assert done.counts == Counts(delivered=12, failed=4)
        assert done.status_counts == {"201": 12, "400": 4}

    asyncio.run(scenario())


def test_a_failure_has_the_last_attempt(bench: Bench) -> None:
    async def scenario() -> tuple[tuple[Failure, ...], Replay]:
        bench.change(retry_attempts_max=2, retry_base_s=0.01, retry_cap_s=0.01)
        webhook = await bench.webhook()
        bench.receiver.words = b"no such \xc3\xbcser"
        bench.receiver.answer(500, delay_s=0.05)
        await bench.publish(bench.events(webhook.id, 0, 3))
        replay = bench.replay(webhook)
        async with bench.worker():
            running = await bench.finished(replay)
        return bench.store.failures(replay.id).items, running

    failures, finished = asyncio.run(scenario())
    begun_ms, ended_ms = finished.created_ms, finished.finished_ms
    assert ended_ms is not None
    assert [failure.attempts for failure in failures] == [2, 2, 2]
    assert all(begun_ms < (failure.last_attempt_ms or 0) <= ended_ms for failure in failures)
    assert {failure.worker for failure in failures} == {finished.worker}
    assert {failure.response for failure in failures} == {"no such üser"}
    assert all((failure.duration_ms or 0) >= 50 for failure in failures)


def test_a_webhook_has_its_own_retry_schedule(bench: Bench) -> None:
    async def scenario() -> tuple[Failure, ...]:
        bench.change(retry_attempts_max=1)
        webhook = await bench.webhook()
        options = EndpointOptions(retry_schedule_s=(1,))
        bench.store.update_webhook(webhook.id, change_options=lambda _: options)
        bench.receiver.answer(500)
        await bench.publish(bench.events(webhook.id, 0, 2))
        replay = bench.replay(webhook)
        async with bench.worker():
            await bench.finished(replay)
        return bench.store.failures(replay.id).items

    assert [failure.attempts for failure in asyncio.run(scenario())] == [2, 2]


def test_events_without_a_response_are_counted(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_attempts_max=1)
        webhook = bench.store_webhook("http://127.0.0.1:1/")
        await bench.publish(bench.events(webhook.id, 0, 3))
        replay = bench.replay(webhook)
        async with bench.worker():
            done = await bench.finished(replay)
        assert done.status_counts == {"none": 3}
        assert {failure.response for failure in bench.store.failures(replay.id).items} == {None}

    asyncio.run(scenario())


def test_the_samples_of_a_replay_lead_from_its_begin_to_its_end(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 60))
        replay = bench.replay(webhook, max_events_per_second=40)
        async with bench.worker():
            done = await bench.finished(replay)
        first, *between, last = bench.store.samples(replay.id)
        assert (first.checkpoint, first.counts) == (0, Counts())
        assert between, "a replay of more than a second has a sample on its way"
        assert (last.checkpoint, last.counts) == (60, done.counts)
        assert last.at_ms >= (done.finished_ms or 0)

    asyncio.run(scenario())
