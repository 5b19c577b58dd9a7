"""Options of a replay: selection, target, rate limit, batches."""

import asyncio
import json
import logging
import time
from bisect import bisect_left
from hashlib import sha256

import pytest

from app.domain.concurrency import START
from app.domain.dedupe import lasting_digest
from app.domain.delivery import LiveOutcome
from app.domain.model import Counts, NewReplay, Webhook, Window
from app.domain.options import Only, ReplayOptions
from app.domain.rates import SLACK_S
from app.domain.states import ReplayState
from app.log.event import NewEvent
from app.log.outcomes import DeliveryOutcome, encode_outcome
from app.log.topics import DELIVERY_OUTCOMES
from tests.integration.replay_workers.worker_bench import BEGIN_MS, Bench
from tests.support.processes.waiting import until_async

ALL = Window(BEGIN_MS, BEGIN_MS + 1_000_000)


def members(body: bytes) -> list[int]:
    """The numbers of the events in a batch."""
    return [event["n"] for event in json.loads(body)]


def delivered_numbers(bench: Bench) -> list[int]:
    """The numbers of all events in batches that the receiver accepted."""
    return [n for got in bench.received if got.status < 300 for n in members(got.body)]


def test_only_event_types_that_match_a_glob_are_delivered(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        types = ["follow.created", "follow.deleted", "like.created", "unfollow.created"]
        events = [
            event
            for n in range(25)
            for event_type in types
            for event in [
                NewEvent(webhook.id, f"{event_type}_{n}", event_type, BEGIN_MS + n, b"{}")
            ]
        ]
        await bench.publish(events)
        replay = bench.replay(webhook, event_types=("follow.*", "like.create?"))
        async with bench.worker():
            replay = await bench.finished(replay)
        wanted = [event.event_id for event in events if event.event_type in types[:3]]
        assert sorted(bench.event_ids) == sorted(wanted)
        assert replay.counts == Counts(delivered=75)
        assert replay.offsets is not None
        assert replay.checkpoint == replay.offsets.end

    asyncio.run(scenario())


async def write_outcomes(
    bench: Bench, webhook: Webhook, outcomes: dict[int, LiveOutcome], origin: str = "local"
) -> None:
    """Write outcomes of live deliveries, as an earlier version of the live path did."""
    partition = bench.partition_of(webhook)
    events = [
        NewEvent(
            webhook.id,
            f"evt_{offset}",
            "",
            BEGIN_MS + offset,
            encode_outcome(
                DeliveryOutcome(partition, offset, f"evt_{offset}", outcome, 1, None, None, 0, None)
            ),
        )
        for offset, outcome in outcomes.items()
    ]
    await bench.publish(events, DELIVERY_OUTCOMES, origin=origin)


def test_only_events_without_a_successful_live_delivery_are_delivered(timed_bench: Bench) -> None:
    bench = timed_bench

    async def scenario() -> None:
        bench.change(origin="local")
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 100))
        kinds = [
            LiveOutcome.DELIVERED,
            LiveOutcome.FAILED,
            LiveOutcome.SKIPPED,
            LiveOutcome.DISABLED,
        ]
        outcomes = {offset: kinds[offset % 4] for offset in range(80)}  # of the rest, nothing
        await write_outcomes(bench, webhook, outcomes)
        # What came twice, and was delivered once, was delivered.
        await write_outcomes(bench, webhook, {0: LiveOutcome.FAILED, 1: LiveOutcome.DELIVERED})
        # Offsets of another data centre's log are others, and it gives no digest.
        await write_outcomes(bench, webhook, {90: LiveOutcome.DELIVERED}, origin="elsewhere")
        replay = bench.replay(webhook, only=Only.FAILED)
        async with bench.worker():
            replay = await bench.finished(replay)
        missing = [n for n in range(100) if n >= 80 or (n % 4 and n != 1)]
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in missing)
        assert replay.counts == Counts(delivered=len(missing))

    asyncio.run(scenario())


def test_events_that_a_replay_delivered_are_not_missing_any_more(timed_bench: Bench) -> None:
    bench = timed_bench

    async def scenario() -> None:
        bench.change(origin="local")
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 100))
        await write_outcomes(bench, webhook, dict.fromkeys(range(10), LiveOutcome.DELIVERED))
        bench.receiver.judge = lambda body: 400 if body == b'{"n": 42}' else 204
        async with bench.worker():
            first = await bench.finished(bench.replay(webhook, only=Only.FAILED))
            assert first.counts == Counts(delivered=89, failed=1)
            again = await bench.finished(bench.replay(webhook, only=Only.FAILED))
            # Only what the first one could not deliver.
            assert again.counts == Counts(failed=1)
            elsewhere = f"{bench.receiver.url}/elsewhere"
            other = bench.replay(webhook, only=Only.FAILED, target_url=elsewhere)
            assert (await bench.finished(other)).counts == Counts(delivered=89, failed=1)
            bench.receiver.judge = None
            retry = bench.store.create_replay(
                NewReplay(webhook.id, first.window, first.options, first.id)
            )[0]
            assert (await bench.finished(retry)).counts == Counts(delivered=1)
            last = await bench.finished(bench.replay(webhook, only=Only.FAILED))
            assert last.counts == Counts()
            everything = await bench.finished(bench.replay(webhook))
            assert everything.counts == Counts(delivered=100)

    asyncio.run(scenario())


def test_an_event_that_an_earlier_replay_did_not_select_is_still_missing(
    timed_bench: Bench,
) -> None:
    bench = timed_bench

    async def scenario() -> None:
        bench.change(origin="local")
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        part = Window(BEGIN_MS + 5, BEGIN_MS + 10)
        # It ended at its checkpoint.
        stopped = bench.replay(webhook, checkpoint=7)
        bench.store.cancel_replay(stopped.id)
        async with bench.worker():
            none = bench.replay(webhook, event_types=("other.*",))
            assert (await bench.finished(none)).counts == Counts()
            some = await bench.finished(bench.replay(webhook, part))
            assert some.counts == Counts(delivered=5)
            rest = await bench.finished(bench.replay(webhook, only=Only.FAILED))
        # 0 to 6 lie below the checkpoint of the cancelled replay.
        assert rest.counts == Counts(delivered=20)

    asyncio.run(scenario())


def outcome_elsewhere(event: NewEvent, offset: int) -> NewEvent:
    """The outcome that the live path of another data centre writes for a delivered event."""
    digest = lasting_digest(event.event_id, event.body)
    became = DeliveryOutcome(
        0, offset, event.event_id, LiveOutcome.DELIVERED, 1, 204, None, 0, digest
    )
    return event._replace(body=encode_outcome(became))


def test_an_event_delivered_in_another_data_centre_is_skipped(
    timed_bench: Bench,
) -> None:
    bench = timed_bench

    async def scenario() -> None:
        bench.change(origin="here")
        webhook = await bench.webhook()
        mirrored, own = bench.events(webhook.id, 0, 50), bench.events(webhook.id, 50, 100)
        await bench.publish(mirrored, origin="elsewhere")
        await bench.publish(own, origin="here")
        # There they lie at offsets that other events have here.
        outcomes = [outcome_elsewhere(event, 60 + n) for n, event in enumerate(mirrored[:30])]
        await bench.publish(outcomes, DELIVERY_OUTCOMES, origin="elsewhere")
        # Its outcomes count only for its own events: this event was never mirrored to it.
        stray = [outcome_elsewhere(own[0], 5)]
        await bench.publish(stray, DELIVERY_OUTCOMES, origin="elsewhere")
        await write_outcomes(bench, webhook, {99: LiveOutcome.DELIVERED}, origin="here")
        replay = bench.replay(webhook, only=Only.FAILED)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert sorted(bench.event_ids) == sorted(f"evt_{n}" for n in range(30, 99))
        assert replay.counts == Counts(delivered=69)

    asyncio.run(scenario())


def test_a_copy_of_a_delivered_event_is_skipped(timed_bench: Bench) -> None:
    bench = timed_bench

    async def scenario() -> None:
        bench.change(origin="local")
        webhook = await bench.webhook()
        events = bench.events(webhook.id, 0, 10)
        await bench.publish([*events, events[3]])
        await write_outcomes(
            bench,
            webhook,
            {**dict.fromkeys(range(10), LiveOutcome.DELIVERED), 10: LiveOutcome.SKIPPED},
        )
        replay = bench.replay(webhook, only=Only.FAILED)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(duplicates=1)
        assert bench.received == []

    asyncio.run(scenario())


def test_without_live_deliveries_everything_is_delivered(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 20))
        replay = bench.replay(webhook, only=Only.FAILED)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=20)

    asyncio.run(scenario())


def test_a_retry_delivers_only_the_failures_of_its_parent(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        bench.change(max_in_flight=1)
        await bench.publish(bench.events(webhook.id, 0, 60))
        bench.on_webhook = lambda got: bench.receiver.answer(  # what it answers to the next one
            422 if got.event_id in ("evt_9", "evt_29", "evt_30") else 204
        )
        parent = bench.replay(webhook)
        async with bench.worker():
            parent = await bench.finished(parent)
            assert parent.counts == Counts(delivered=57, failed=3)
            bench.on_webhook = lambda _: None
            bench.received.clear()
            asked = NewReplay(webhook.id, ALL, parent.options, retry_of=parent.id)
            replay = await bench.finished(bench.store.create_replay(asked)[0])
        assert bench.event_ids == ["evt_10", "evt_30", "evt_31"]
        assert replay.counts == Counts(delivered=3)
        assert replay.offsets is not None
        assert (replay.offsets.start, replay.offsets.end) == (10, 32)

    asyncio.run(scenario())


def test_a_batch_is_an_array_of_events_in_order(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 230))
        replay = bench.replay(webhook, batch_size=100, max_in_flight=1)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert [members(got.body) for got in bench.received] == [
            list(range(100)),
            list(range(100, 200)),
            list(range(200, 230)),
        ]
        sizes = [got.headers["webhook-batch-size"] for got in bench.received]
        assert sizes == ["100", "100", "30"]
        names = "".join(f"{n}:evt_{n}\n" for n in range(200, 230)).encode()
        assert bench.event_ids[2] == f"batch_{sha256(names).hexdigest()[:32]}"
        assert {got.status for got in bench.received} == {204}  # the receiver verifies signatures
        assert replay.counts == Counts(delivered=230)

    asyncio.run(scenario())


def test_duplicates_within_and_between_batches_are_counted(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        events = bench.events(webhook.id, 0, 50)
        await bench.publish([*events[:15], *events[:10], *events[12:], events[49]])
        replay = bench.replay(webhook, batch_size=10)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert sorted(delivered_numbers(bench)) == list(range(50))
        assert replay.counts == Counts(delivered=50, duplicates=14)

    asyncio.run(scenario())


def test_a_batch_is_retried_with_the_same_id(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 20))
        replay = bench.replay(webhook, batch_size=10, max_in_flight=1)
        bench.receiver.answer(503)
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 3, "attempts were made")
            bench.receiver.answer(204)
            replay = await bench.finished(replay)
        assert len(set(bench.event_ids)) == 2
        assert delivered_numbers(bench) == list(range(20))
        assert replay.counts == Counts(delivered=20)

    asyncio.run(scenario())


def test_all_events_of_a_rejected_batch_are_listed(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 30))
        replay = bench.replay(webhook, batch_size=10, max_in_flight=1)
        bench.on_webhook = lambda _: bench.receiver.answer(
            422 if len(bench.received) == 1 else 204  # the second batch
        )
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=20, failed=10)
        failures = bench.store.failures(replay.id, limit=100).items
        assert [failure.event_id for failure in failures] == [f"evt_{n}" for n in range(10, 20)]
        assert {(failure.status, failure.attempts) for failure in failures} == {(422, 1)}

    asyncio.run(scenario())


def test_a_batch_too_large_for_its_receiver_is_split(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 100))
        replay = bench.replay(webhook, batch_size=40, max_in_flight=1)
        bench.receiver.judge = lambda body: 413 if len(members(body)) > 7 else 204
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=100)
        assert delivered_numbers(bench) == list(range(100))
        # It learned from the first one: 40, 20 and 10 were too many, and are not tried again.
        assert [got.status for got in bench.received].count(413) == 3

    asyncio.run(scenario())


def test_a_paused_replay_keeps_what_it_delivered_of_a_split_batch(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")

    async def scenario() -> None:
        bench.change(retry_base_s=3_600.0, retry_cap_s=3_600.0)
        webhook = await bench.webhook()
        events = bench.events(webhook.id, 0, 8)
        await bench.publish([*events[:1], *events[:1], *events[1:3], *events[2:3], *events[3:]])
        replay = bench.replay(webhook, batch_size=8, max_in_flight=1)

        def judge(body: bytes) -> int:
            if len(members(body)) > 2:
                return 413
            return 503 if 4 in members(body) else 204

        bench.receiver.judge = judge
        async with bench.worker():
            await until_async(lambda: 503 in [got.status for got in bench.received], "a part fails")
            bench.store.pause_replay(replay.id)
            await until_async(lambda: "stopped" in caplog.messages, "the worker let go")
            paused = bench.store.replay(replay.id)
            assert paused.counts == Counts(delivered=4, duplicates=2)
            bench.receiver.judge = None
            bench.receiver.answer(204)
            bench.store.resume_replay(replay.id)
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=8, duplicates=2)
        assert delivered_numbers(bench) == list(range(8))

    asyncio.run(scenario())


def test_an_event_too_large_by_itself_fails_alone(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 16))
        replay = bench.replay(webhook, batch_size=8)
        bench.receiver.judge = lambda body: 413 if 5 in members(body) else 204
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=15, failed=1)
        (failure,) = bench.store.failures(replay.id).items
        assert (failure.event_id, failure.status) == ("evt_5", 413)

    asyncio.run(scenario())


def test_a_batch_stays_below_a_mebibyte(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        large = json.dumps({"n": 1, "text": "x" * 300_000}).encode()
        await bench.publish(
            [
                NewEvent(webhook.id, f"evt_{n}", "t", BEGIN_MS + n, large + b" " * n)
                for n in range(8)
            ]
        )
        replay = bench.replay(webhook, batch_size=100, max_in_flight=1)
        async with bench.worker():
            await bench.finished(replay)
        assert [got.headers["webhook-batch-size"] for got in bench.received] == ["3", "3", "2"]
        assert all(len(got.body) <= 2**20 + 2 for got in bench.received)

    asyncio.run(scenario())


@pytest.mark.parametrize(("rate", "batch_size"), [(200, 1), (200, 20)])
def test_a_replay_does_not_exceed_its_rate_limit(bench: Bench, rate: int, batch_size: int) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        events = 120
        await bench.publish(bench.events(webhook.id, 0, events))
        replay = bench.replay(webhook, max_events_per_second=rate, batch_size=batch_size)
        # Not from the first request on: on a busy machine that one may take long to arrive.
        began_ms = time.time_ns() // 1_000_000
        async with bench.worker():
            await bench.finished(replay)
        took_s = (bench.received[-1].received_ms - began_ms) / 1_000
        # The last request waits for all before it; how long it may take is the machine's affair.
        assert took_s >= (events - batch_size) / rate - SLACK_S - 0.01

    asyncio.run(scenario())


def test_retries_keep_the_pace_as_well(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_base_s=0.001, retry_cap_s=0.001, retry_attempts_max=2)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 40))
        bench.receiver.judge = lambda _: 204 if len(bench.received) % 2 else 500
        replay = bench.replay(webhook, max_events_per_second=100, max_in_flight=1)
        began_ms = time.time_ns() // 1_000_000
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.counts == Counts(delivered=40)
        took_s = (bench.received[-1].received_ms - began_ms) / 1_000
        assert took_s >= 79 / 100 - SLACK_S - 0.01

    asyncio.run(scenario())


def test_a_replay_whose_first_requests_hang_starts_no_more_and_can_be_cancelled(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 400))
        replay = bench.replay(webhook, max_in_flight=100)
        bench.receiver.answer(204, delay_s=3_600)
        async with bench.worker():
            await until_async(lambda: len(bench.received) == START, "requests wait for an answer")
            bench.store.cancel_replay(replay.id)
            await until_async(lambda: "stopped" in caplog.messages, "the worker let go")
        assert len(bench.received) == START

    asyncio.run(scenario())


def test_events_that_wait_for_a_retry_stop_no_others(bench: Bench) -> None:
    async def scenario() -> None:
        bench.change(retry_base_s=3_600.0, retry_cap_s=3_600.0)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 200))
        replay = bench.replay(webhook, max_in_flight=100)
        # More than are in flight at first, but not enough in a row for an outage.
        bench.receiver.judge = lambda body: 500 if json.loads(body)["n"] % 4 == 3 else 204
        async with bench.worker():
            await until_async(lambda: len(bench.taken) == 150, "all others are accepted")
            bench.store.cancel_replay(replay.id)

    asyncio.run(scenario())


def test_a_slow_receiver_gets_more_requests_at_a_time_up_to_the_limit(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 1_500))
        replay = bench.replay(webhook, max_in_flight=64)
        bench.receiver.answer(204, delay_s=0.2)
        async with bench.worker():
            done = await bench.finished(replay)
        assert done.counts.delivered == 1_500
        # A request occupies its connection for 200 ms.
        times_ms = [each.received_ms for each in bench.received]
        at_once = [bisect_left(times_ms, t + 199) - n for n, t in enumerate(times_ms)]
        assert at_once[0] == START
        assert 32 < max(at_once) <= 64

    asyncio.run(scenario())


def test_options_survive_a_take_over(bench: Bench) -> None:
    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 90))
        asked = ReplayOptions(batch_size=10, max_events_per_second=1_000_000)
        replay = bench.replay(webhook, checkpoint=45, batch_size=10)
        assert replay.options == asked
        async with bench.worker():
            replay = await bench.finished(replay)
        assert sorted(delivered_numbers(bench)) == list(range(45, 90))
        assert (replay.state, replay.counts) == (ReplayState.COMPLETED, Counts(delivered=45))

    asyncio.run(scenario())
