"""A replay over batches that no client can read ends, and says what it skipped."""

import asyncio

from app.domain.model import Counts, UnreadableCounts, Window
from app.domain.states import ReplayState
from app.log.topics import DELIVERY_LOG
from logbroker.client.partitioner import partition_for_key
from logbroker.records.record import NewRecord, encode_batch
from tests.integration.replay_workers.worker_bench import BEGIN_MS, PARTITIONS, Bench
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.damaged_log import DAMAGES, damage_batch, stored_batches
from tests.support.kafka.raw_connection import RawConnection

EVENTS = 10
"""In a batch."""


def write_batches(broker: BrokerProcess, webhook_id: str, count: int) -> int:
    """Write batches of a webhook's events, one millisecond apart; return their partition."""
    partition = partition_for_key(webhook_id.encode(), PARTITIONS)
    with RawConnection(broker.bootstrap_servers) as connection:
        for start in range(0, count * EVENTS, EVENTS):
            records = [
                NewRecord(
                    BEGIN_MS + number,
                    webhook_id.encode(),
                    b"{}",
                    (("event-id", b"evt_%d" % number), ("event-type", b"test.happened")),
                )
                for number in range(start, start + EVENTS)
            ]
            connection.produce(DELIVERY_LOG, encode_batch(records), acks=-1, partition=partition)
            assert connection.produced()[1] == 0
    return partition


def test_a_replay_over_unreadable_batches_completes_and_counts_them(
    timed_bench: Bench, broker: BrokerProcess
) -> None:
    bench = timed_bench

    async def scenario() -> None:
        webhook = await bench.webhook()
        count = 2 * len(DAMAGES) + 1
        partition = write_batches(broker, webhook.id, count)
        broker.stop()
        batches = stored_batches(broker.data_dir, DELIVERY_LOG, partition)
        for batch, damage in zip(batches[1::2], DAMAGES.values(), strict=True):
            damage_batch(batch, damage)
        broker.serve()
        # The window begins inside the first damaged batch, which the lookup of offsets meets.
        window = Window(BEGIN_MS + EVENTS + 5, BEGIN_MS + count * EVENTS)
        replay = bench.replay(webhook, window)
        async with bench.worker():
            replay = await bench.finished(replay)
        assert replay.state is ReplayState.COMPLETED
        readable = [n for n in range(2 * EVENTS, count * EVENTS) if not n // EVENTS % 2]
        assert sorted(bench.event_ids) == sorted(f"evt_{number}" for number in readable)
        assert replay.counts == Counts(delivered=len(readable))
        assert replay.unreadable.batches == len(DAMAGES)
        assert replay.offsets is not None
        skipped = [n for n in range(count * EVENTS) if n // EVENTS % 2]
        in_range = [n for n in skipped if n >= replay.offsets.start]
        assert replay.unreadable == UnreadableCounts(len(DAMAGES), len(in_range))

    asyncio.run(scenario())
