"""The queue of a replay holds a bounded number of bytes."""

import asyncio

from app.delivery.batch import BatchBuilder
from app.domain.checkpointing import DeliveryLedger
from app.domain.model import Counts
from app.log.event import LoggedEvent
from app.replay_workers import queue as queue_module
from app.replay_workers.queue import QueuedBatch, ReplayQueue


def event(offset: int, size: int) -> LoggedEvent:
    return LoggedEvent(offset, 0, b"wh", f"evt_{offset}", "t", b"x" * size)


async def new_queue(ledger: DeliveryLedger, sent: list[QueuedBatch]) -> ReplayQueue:
    """A queue whose batches are collected in `sent` and not settled."""

    async def collect(_queue: ReplayQueue, queued: QueuedBatch) -> None:
        sent.append(queued)

    return ReplayQueue(
        ledger,
        collect,
        in_flight_max=1,
        batch_events_max=1,
        start_task=asyncio.get_running_loop().create_task,
    )


def test_reading_waits_until_enough_is_settled() -> None:
    async def scenario() -> None:
        ledger, sent = DeliveryLedger(0, Counts()), list[QueuedBatch]()
        queue = await new_queue(ledger, sent)
        builder = BatchBuilder(1)
        for offset in range(6):
            builder.add_event(event(offset, queue_module.BYTES_MAX // 4))
        reading = asyncio.create_task(queue.add_batches(builder.take_completed(6)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(sent) == 3  # a fourth would exceed the limit by its comma
        assert not reading.done()
        assert ledger.events_above_checkpoint == 3
        for queued in tuple(sent):
            queue.settle(queued, {200: 1}, ())
        await asyncio.wait_for(reading, 10)
        assert ledger.events_above_checkpoint == 3

    asyncio.run(scenario())


def test_one_event_larger_than_the_limit_is_accepted_alone() -> None:
    async def scenario() -> None:
        ledger = DeliveryLedger(0, Counts())
        queue = await new_queue(ledger, [])
        builder = BatchBuilder(1)
        builder.add_event(event(0, 2 * queue_module.BYTES_MAX))
        await asyncio.wait_for(queue.add_batches(builder.take_completed(1)), 10)
        assert ledger.events_above_checkpoint == 1

    asyncio.run(scenario())
