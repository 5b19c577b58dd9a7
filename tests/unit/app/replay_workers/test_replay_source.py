"""The source of a replay reads the first events while the gap is still searched for."""

import asyncio

from app.delivery.batch import BatchBuilder
from app.domain.checkpointing import DeliveryLedger
from app.domain.dedupe import SeenHashes
from app.domain.model import Counts, OffsetRange, Window
from app.domain.turns import ReplayActivity
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.reader import ReplayReader
from app.log.reader_clients import ReaderClients
from app.replay_workers.queue import QueuedBatch, ReplayQueue
from app.replay_workers.selection import GAP_RECORDS_MIN, Selection
from app.replay_workers.source import ReplaySource
from logbroker.client.partitioner import partition_for_key
from tests.support.processes.waiting import DEADLINE_S

WEBHOOK = "wh_1"
PARTITION = partition_for_key(WEBHOOK.encode(), 4)
WINDOW = Window(1, 2)

GAP = range(GAP_RECORDS_MIN + 3_000, 2 * GAP_RECORDS_MIN + 3_000)
END = GAP.stop + 10


async def publish(bootstrap_servers: str) -> None:
    async with EventPublisher(bootstrap_servers, origin="here", server="test") as publisher:
        events = [NewEvent(WEBHOOK, f"evt_{n}", "made", WINDOW.from_ms, b"{}") for n in range(END)]
        for start in range(0, END, GAP_RECORDS_MIN):
            await publisher.publish("deliveries", events[start : start + GAP_RECORDS_MIN])


def test_the_first_events_are_sent_before_the_gap_is_found(foreign_broker: str) -> None:
    sent: list[int] = []

    async def scenario() -> None:
        await publish(foreign_broker)
        first_is_sent = asyncio.Event()

        async def find_gap() -> range:
            async with asyncio.timeout(DEADLINE_S):
                await first_is_sent.wait()
            return GAP

        async def deliver(queue: ReplayQueue, queued: QueuedBatch) -> None:
            sent.extend(event.offset for event in queued.batch.events)
            queue.begin(queued)
            queue.settle(queued, {200: len(queued.batch.events)}, ())
            first_is_sent.set()

        ledger = DeliveryLedger(0, Counts())
        queue = ReplayQueue(
            ledger,
            deliver,
            in_flight_max=1,
            batch_events_max=100,
            start_task=asyncio.get_running_loop().create_task,
            request_checkpoint=lambda: ledger.forget_recorded(ledger.checkpoint()),
        )
        reader = ReplayReader(
            ReaderClients(foreign_broker),
            "deliveries",
            OffsetRange(PARTITION, 0, END),
            key=WEBHOOK.encode(),
            window=WINDOW,
        )
        source = ReplaySource(
            reader,
            Selection(find_gap=find_gap),
            SeenHashes(END),
            BatchBuilder(100),
            resume_at=0,
            activity=ReplayActivity(0.0),
        )
        await source.run(queue)
        await queue.deliveries.wait_until_done()

    asyncio.run(scenario())
    assert sent == sorted(set(sent))
    assert {*range(GAP.start), *range(GAP.stop, END)} <= set(sent)
    # The records of one read may reach into the gap.
    assert len(set(sent) & set(GAP)) < 2_000
