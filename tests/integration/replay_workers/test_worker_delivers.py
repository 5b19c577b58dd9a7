"""A worker delivers the events of a window once, however the receiver responds."""

import asyncio
import tracemalloc
from itertools import pairwise

from app.domain.concurrency import START
from app.domain.model import Counts, NewReplay, Window
from app.domain.states import ReplayState
from tests.integration.replay_workers.worker_bench import BEGIN_MS, Bench
from tests.support.processes.waiting import until_async


def test_exactly_the_events_of_the_window_are_delivered_once(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        other = [f"wh_other_{n}" for n in range(8)]  # some share the partition
        await bench.publish(
            [
                *bench.events(webhook.id, 0, 300),
                *(event for key in other for event in bench.events(key, 0, 100)),
                *bench.events(webhook.id, 300, 1_000),
            ]
        )
        replay = bench.replay(webhook, Window(BEGIN_MS + 100, BEGIN_MS + 900))
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.COMPLETED
        assert replay.counts == Counts(delivered=800)
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in range(100, 900))

    asyncio.run(scenario())


def test_a_request_has_body_signature_and_replay_id(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 7, 8))
        replay = bench.replay(webhook)
        async with bench.worker():
            await bench.finished(replay)
        (received,) = bench.received
        assert received.status == 204  # the receiver verifies signatures
        assert received.body == b'{"n": 7}'
        assert received.event_id == "evt_7"
        assert received.replay_id == replay.id

    asyncio.run(scenario())


def test_duplicates_are_skipped_and_counted(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        events = bench.events(webhook.id, 0, 50)
        await bench.publish([*events, *events[10:30]])
        replay = bench.replay(webhook)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=50, duplicates=20)
        assert sorted(bench.event_ids) == sorted(event.event_id for event in events)

    asyncio.run(scenario())


def test_one_request_in_flight_keeps_the_order_across_retries(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(max_in_flight=1)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 60))
        replay = bench.replay(webhook)
        bench.receiver.answer(503)
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 2, "two attempts were made")
            bench.receiver.answer(204)
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=60)
        assert bench.taken == [f"evt_{n}" for n in range(60)]
        assert set(bench.event_ids[:2]) == {"evt_0"}

    asyncio.run(scenario())


def test_a_recovered_receiver_gets_everything(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_attempts_max=100, retry_cap_s=0.1)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 200))
        replay = bench.replay(webhook)
        await bench.receiver.stop()
        knocks: list[object] = []

        async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            knocks.append(writer)
            writer.close()

        closed = await asyncio.start_server(slam, bench.receiver.host, bench.receiver.port)
        async with bench.worker():
            await until_async(lambda: len(knocks) >= 30, "30 attempts failed")
            closed.close()
            await closed.wait_closed()
            await bench.receiver.start()
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=200)
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in range(200))

    asyncio.run(scenario())


def test_a_failing_receiver_is_probed_by_one_request_at_a_time(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_attempts_max=100, retry_base_s=0.05, retry_cap_s=0.05)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 2_000))
        replay = bench.replay(webhook)
        bench.receiver.answer(503)
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 20, "probes were sent")
            bench.receiver.answer(204)
            replay = await bench.finished(replay)
        refused = [webhook for webhook in bench.received if webhook.status == 503]
        # Some were under way twice when it went down; a probe every twentieth of a second since.
        times_ms = [each.received_ms for each in refused[2 * START :]]
        assert all(later - earlier >= 35 for earlier, later in pairwise(times_ms))
        assert replay.counts == Counts(delivered=2_000)

    asyncio.run(scenario())


def test_events_of_a_receiver_that_stays_down_are_listed_as_failed(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 40))
        replay = bench.replay(webhook)
        bench.receiver.answer(503)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.COMPLETED
        assert replay.counts == Counts(failed=40)
        jobs = bench.metrics.registry.get_sample_value
        name, partial = "rewind_worker_jobs_total", {"how": "completed_with_failures"}
        await until_async(lambda: jobs(name, partial) == 1, "the job is counted")
        assert jobs(name, {"how": "completed"}) == 0
        failures = bench.store.failures(replay.id, limit=100).items
        assert [failure.event_id for failure in failures] == [f"evt_{n}" for n in range(40)]
        assert {failure.status for failure in failures} == {503}
        assert all(1 <= failure.attempts <= 6 for failure in failures)
        assert {failure.reason for failure in failures} == {"HTTP 503 Service Unavailable"}

    asyncio.run(scenario())


def test_a_rejected_event_is_listed_and_the_others_are_delivered(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        bench.change(max_in_flight=1)
        bench.on_webhook = lambda received: bench.receiver.answer(
            422 if received.event_id == "evt_14" else 204  # what it answers to the next one
        )
        replay = bench.replay(webhook)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=29, failed=1)
        (failure,) = bench.store.failures(replay.id).items
        assert (failure.event_id, failure.status, failure.attempts) == ("evt_15", 422, 1)

    asyncio.run(scenario())


def test_a_thousand_consecutive_failures_end_the_replay(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 3_000))
        replay = bench.replay(webhook)
        bench.receiver.answer(422)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.FAILED
        assert replay.error is not None
        assert "stopped after 1,000 consecutive failures" in replay.error
        assert 900 < replay.counts.failed <= 1_000 + 16

    asyncio.run(scenario())


def test_a_replay_shows_why_nothing_is_delivered_while_its_receiver_fails(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_attempts_max=1_000, retry_base_s=0.1, retry_cap_s=0.5)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 200))
        replay = bench.replay(webhook)
        bench.receiver.answer(500)
        async with bench.worker():
            await until_async(
                lambda: bench.store.replay(replay.id).receiver_failure is not None,
                "the failure is shown",
            )
            shown = bench.store.replay(replay.id)
            failure = shown.receiver_failure
            assert failure is not None
            assert (failure.status, failure.reason) == (500, "HTTP 500 Internal Server Error")
            assert failure.failed_attempts >= 5
            assert failure.waiting_events == 200
            assert failure.since_ms <= failure.last_attempt_ms <= failure.next_attempt_ms
            assert shown.counts == Counts()
            bench.receiver.answer(204)
            ended = await bench.finished(replay)
        assert (ended.counts, ended.receiver_failure) == (Counts(delivered=200), None)

    asyncio.run(scenario())


def test_a_failed_replay_continues_at_its_checkpoint_and_is_retried_as_a_whole(
    bench: Bench,
) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 3_000))
        replay = bench.replay(webhook)
        bench.receiver.answer(422)
        async with bench.worker():
            failed = await bench.finished(replay)
            assert failed.state is ReplayState.FAILED
            rest = 3_000 - failed.counts.failed
            bench.receiver.answer(204)
            retry = NewReplay(webhook.id, failed.window, failed.options, failed.id)
            retried = await bench.finished(bench.store.create_replay(retry)[0])
            assert (retried.state, retried.counts) == (ReplayState.COMPLETED, Counts(3_000))
            assert sorted(bench.taken) == sorted(f"evt_{n}" for n in range(3_000))
            bench.store.resume_replay(failed.id)
            resumed = await bench.finished(failed)
        assert (resumed.state, resumed.error) == (ReplayState.COMPLETED, None)
        assert resumed.counts == Counts(delivered=rest, failed=failed.counts.failed)
        assert len(bench.taken) == 3_000 + rest

    asyncio.run(scenario())


def test_a_url_that_is_no_longer_allowed_fails_the_replay_before_sending(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 5))
        replay = bench.replay(webhook)
        bench.change(allow_private_targets=False)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.FAILED
        assert replay.error is not None
        assert replay.error.startswith("URL not allowed: ")
        assert bench.received == []

    asyncio.run(scenario())


def test_an_empty_window_completes_at_once(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 5))
        replay = bench.replay(webhook, Window(1_000, 2_000))
        async with bench.worker():
            replay = await bench.finished(replay)
        assert (replay.state, replay.counts) == (ReplayState.COMPLETED, Counts())
        assert replay.offsets is not None
        assert replay.checkpoint == replay.offsets.end

    asyncio.run(scenario())


def test_a_short_replay_needs_little_memory(bench: Bench) -> None:
    bench.change(dedupe_entries=10_000_000)

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 100))
        async with bench.worker():
            await bench.finished(bench.replay(webhook))
            tracemalloc.start()
            try:
                replay = await bench.finished(bench.replay(webhook))
                _, highest_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert replay.counts == Counts(delivered=100)
        # The digests of ten million events take 130 MB.
        assert highest_bytes < 20_000_000

    asyncio.run(scenario())
