"""The queue of a replay holds a bounded number of bytes, and of events that are not stored."""

import asyncio
from collections.abc import Callable

from app.delivery.batch import BatchBuilder
from app.domain.checkpointing import DeliveryLedger
from app.domain.model import Counts
from app.log.event import LoggedEvent
from app.replay_workers import queue as queue_module
from app.replay_workers.queue import QueuedBatch, ReplayQueue
from tests.support.processes.waiting import until_async


def event(offset: int, size: int) -> LoggedEvent:
    return LoggedEvent(offset, 0, b"wh", f"evt_{offset}", "t", b"x" * size)


async def new_queue(
    ledger: DeliveryLedger,
    sent: list[QueuedBatch],
    *,
    is_settled: bool = False,
    request_checkpoint: Callable[[], None] = lambda: None,
) -> ReplayQueue:
    """A queue whose batches are collected in `sent`, and settled if `is_settled`."""

    async def collect(queue: ReplayQueue, queued: QueuedBatch) -> None:
        sent.append(queued)
        if is_settled:
            queue.settle(queued, {200: len(queued.batch.events)}, ())

    return ReplayQueue(
        ledger,
        collect,
        in_flight_max=1,
        batch_events_max=1,
        start_task=asyncio.get_running_loop().create_task,
        request_checkpoint=request_checkpoint,
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
        assert ledger.events_above_recorded == 3
        for queued in tuple(sent):
            queue.settle(queued, {200: 1}, ())
        await asyncio.wait_for(reading, 10)
        assert (ledger.events_to_record, ledger.events_above_recorded) == (3, 6)

    asyncio.run(scenario())


def test_one_event_larger_than_the_limit_is_accepted_alone() -> None:
    async def scenario() -> None:
        ledger = DeliveryLedger(0, Counts())
        queue = await new_queue(ledger, [])
        builder = BatchBuilder(1)
        builder.add_event(event(0, 2 * queue_module.BYTES_MAX))
        await asyncio.wait_for(queue.add_batches(builder.take_completed(1)), 10)
        assert ledger.events_above_recorded == 1

    asyncio.run(scenario())


def test_reading_waits_until_what_is_delivered_is_stored() -> None:
    async def scenario() -> None:
        ledger, sent = DeliveryLedger(0, Counts()), list[QueuedBatch]()
        requests: list[int] = []
        queue = await new_queue(
            ledger,
            sent,
            is_settled=True,
            request_checkpoint=lambda: requests.append(ledger.events_to_record),
        )
        builder = BatchBuilder(1)
        for offset in range(2 * queue_module.EVENTS_MAX):
            builder.add_event(event(offset, 1))
        completed = builder.take_completed(2 * queue_module.EVENTS_MAX)
        reading = asyncio.create_task(queue.add_batches(completed))
        await until_async(lambda: len(sent) == queue_module.EVENTS_MAX, "all that is admitted")
        await asyncio.sleep(0)
        # Every event is delivered, and none is stored: a takeover would repeat all of them.
        assert not reading.done()
        assert ledger.events_above_recorded == queue_module.EVENTS_MAX
        assert requests[0] == queue_module.EVENTS_MAX // 2
        requests.clear()
        queue.continue_reading()
        assert requests == [queue_module.EVENTS_MAX], "what is not stored is requested again"
        requests.clear()
        ledger.forget_recorded(ledger.checkpoint())
        queue.continue_reading()
        await asyncio.wait_for(reading, 10)
        await until_async(lambda: len(sent) == 2 * queue_module.EVENTS_MAX, "the rest")
        assert requests[0] == queue_module.EVENTS_MAX // 2

    asyncio.run(scenario())
