"""Replay workers write outcomes to the log by event hour, without delaying replays."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.domain.hours import HOUR_MS
from app.domain.model import Counts, Webhook, Window
from app.domain.options import Source
from app.domain.windows import parse_time
from app.log.event import NewEvent
from app.log.replay_outcomes import ReplayOutcome
from app.log.topics import REPLAY_OUTCOMES
from app.replay_workers import outcome_publisher
from app.webhooks.receiver import ReceivedWebhook
from tests.integration.replay_workers.worker_bench import BEGIN_MS, Bench
from tests.support.processes.waiting import DEADLINE_S, until_async

HOUR = BEGIN_MS // HOUR_MS


def replay_outcomes_of(bench: Bench, webhook: Webhook) -> list[ReplayOutcome]:
    """Return the replay outcomes of a webhook in log order."""
    place = TopicPartition(REPLAY_OUTCOMES, bench.partition_of(webhook), 0)
    configuration = {"bootstrap.servers": bench.bootstrap_servers, "group.id": "test"}
    consumer = Consumer(configuration)
    try:
        low, high = consumer.get_watermark_offsets(place, DEADLINE_S)
        consumer.assign([place])
        records = consumer.consume(high - low, DEADLINE_S)
    finally:
        consumer.close()
    assert {record.key() for record in records} <= {webhook.id.encode()}
    return [parse_outcome(json.loads(record.value() or b"")) for record in records]


def parse_outcome(members: dict[str, Any]) -> ReplayOutcome:
    """Return the outcome of a record."""
    hours = {
        parse_time(f"{hour}:00:00Z") // HOUR_MS: Counts(**counts)
        for hour, counts in members["hours"].items()
    }
    return ReplayOutcome(
        members["replayId"],
        members["webhookId"],
        members["origin"],
        Source(members["source"]),
        members["epoch"],
        members["start"],
        members["end"],
        parse_time(members["time"]),
        hours,
    )


def test_replay_outcomes_are_written_by_hour_from_the_checkpoint_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_publisher, "PUBLISH_S_MAX", DEADLINE_S)

    async def scenario() -> None:
        webhook = await bench.webhook()
        hours = [HOUR, HOUR + 1, HOUR, HOUR + 2] * 50

        def hour_of(received: ReceivedWebhook) -> int:
            return hours[int(received.event_id.removeprefix("evt_"))]

        events = [
            NewEvent(webhook.id, f"evt_{n}", "test.happened", hour * HOUR_MS + n, b"{}")
            for n, hour in enumerate(hours)
        ]
        await bench.publish([*events, *events[100:150]])
        bench.change(retry_attempts_max=1)
        bench.receiver.judge = lambda _: 400 if len(bench.received) in (7, 9, 11) else 204
        window = Window(HOUR * HOUR_MS, (HOUR + 3) * HOUR_MS)
        replay = bench.replay(webhook, window, checkpoint=40, max_in_flight=1)
        async with bench.worker():
            done = await bench.finished(replay)
        assert done.counts == Counts(157, 50, 3)
        stretches = replay_outcomes_of(bench, webhook)
        assert {(each.replay_id, each.epoch) for each in stretches} == {
            (replay.id, done.lease_epoch)
        }
        assert {(each.source, each.origin) for each in stretches} == {(Source.LOG, "local")}
        assert [each.start for each in stretches] == [40, *(each.end for each in stretches[:-1])]
        assert stretches[-1].end == 250
        assert totals(stretches) == {
            **Counter({(hour, "events"): hours[40:].count(hour) for hour in set(hours)}),
            **Counter({(hour, "duplicates"): hours[100:150].count(hour) for hour in set(hours)}),
            **Counter((hour_of(each), "failed") for each in bench.received if each.status == 400),
        }

    asyncio.run(scenario())


def totals(stretches: list[ReplayOutcome]) -> dict[tuple[int, str], int]:
    found: Counter[tuple[int, str]] = Counter()
    for stretch in stretches:
        for hour, counts in stretch.hours.items():
            found[hour, "events"] += counts.delivered + counts.failed
            found[hour, "duplicates"] += counts.duplicates
            found[hour, "failed"] += counts.failed
    return +found


def test_a_failed_write_of_outcomes_does_not_stop_a_replay(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_publisher, "PUBLISH_S_MAX", 0.2)

    async def scenario() -> None:
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 60))
        replay = bench.replay(webhook, max_events_per_second=60)
        bench.book_servers = "127.0.0.1:1"
        async with bench.worker():
            await until_async(lambda: len(bench.received) >= 20, "delivery has begun")
            done = await bench.finished(replay)
        assert done.counts == Counts(60)

    asyncio.run(scenario())
    # Logged once, not at each of the many checkpoints.
    assert caplog.messages.count("outcomes-not-published") == 1
    lost = bench.metrics.registry.get_sample_value("rewind_worker_outcomes_lost_records_total")
    assert lost is not None
    assert lost > 1
