"""The delivery queue: order, limit of sender tasks, stop."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.delivery.queue import DeliveryQueue


@dataclass(eq=False)
class Letter:
    """A delivery of the tests."""

    name: str
    size_bytes: int = 10


async def yield_to_others() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def new_queue(
    send: Callable[[Letter], Awaitable[None]], in_flight_max: int = 1
) -> DeliveryQueue[Letter]:
    return DeliveryQueue(send, in_flight_max, asyncio.get_running_loop().create_task)


def test_one_sender_task_sends_in_order_and_a_requeued_delivery_first() -> None:
    async def scenario() -> None:
        sent: list[str] = []
        may_go = asyncio.Event()

        async def send(letter: Letter) -> None:
            sent.append(letter.name)
            await may_go.wait()
            queue.remove(letter)

        queue = new_queue(send)
        waiting = Letter("waiting")
        queue.add(waiting, is_ready=False)
        for name in "abc":
            queue.add(Letter(name))
        await yield_to_others()
        queue.requeue(waiting)
        assert sent == ["a"]
        assert (len(queue), queue.size_bytes, queue.ready_count) == (4, 40, 3)
        may_go.set()
        queue.close()
        await asyncio.wait_for(queue.wait_until_done(), 10)
        assert sent == ["a", "waiting", "b", "c"]
        assert queue.is_idle
        assert queue.size_bytes == 0

    asyncio.run(scenario())


def test_no_more_sender_tasks_run_than_the_limit_allows() -> None:
    async def scenario() -> None:
        running, most = 0, 0

        async def send(letter: Letter) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            queue.remove(letter)

        queue = new_queue(send, in_flight_max=3)
        for number in range(20):
            queue.add(Letter(str(number)))
        queue.close()
        await asyncio.wait_for(queue.wait_until_done(), 10)
        assert most == 3

    asyncio.run(scenario())


def test_sender_tasks_end_while_sending_is_not_allowed() -> None:
    async def scenario() -> None:
        sent: list[str] = []
        is_allowed = False

        async def send(letter: Letter) -> None:
            sent.append(letter.name)

        async def may_send() -> bool:
            return is_allowed

        create_task = asyncio.get_running_loop().create_task
        queue = DeliveryQueue[Letter](send, 2, create_task, may_send)
        queue.add(Letter("a"))
        await yield_to_others()
        assert sent == []
        is_allowed = True
        queue.start_senders(queue.ready_count)
        await yield_to_others()
        assert sent == ["a"]

    asyncio.run(scenario())


def test_a_stop_cancels_all_sender_tasks_but_those_in_a_request() -> None:
    async def scenario() -> None:
        ended: list[str] = []
        tasks: dict[str, asyncio.Task[None] | None] = {}
        may_go = asyncio.Event()

        async def send(letter: Letter) -> None:
            tasks[letter.name] = asyncio.current_task()
            await may_go.wait()
            ended.append(letter.name)

        queue = new_queue(send, in_flight_max=2)
        for name in "abc":
            queue.add(Letter(name))
        await yield_to_others()
        queue.stop([tasks["a"]])
        done = asyncio.create_task(queue.wait_until_done())
        await yield_to_others()
        assert not done.done()
        may_go.set()
        await asyncio.wait_for(done, 10)
        assert ended == ["a"]

    asyncio.run(scenario())


def test_a_stop_ends_sender_tasks_that_did_not_run_yet() -> None:
    async def scenario() -> None:
        async def send(letter: Letter) -> None:
            raise AssertionError(letter.name)

        queue = new_queue(send)
        queue.add(Letter("a"))
        queue.stop()
        await asyncio.wait_for(queue.wait_until_done(), 10)

    asyncio.run(scenario())


def test_a_lower_limit_ends_sender_tasks_and_a_higher_one_starts_them() -> None:
    async def scenario() -> None:
        running = 0
        turns = asyncio.Semaphore(0)

        async def send(letter: Letter) -> None:
            nonlocal running
            running += 1
            await turns.acquire()
            running -= 1
            queue.remove(letter)

        queue = new_queue(send, in_flight_max=4)
        for number in range(12):
            queue.add(Letter(str(number)))
        await yield_to_others()
        assert running == 4
        queue.limit_in_flight(1)
        for expected in (3, 2, 1, 1):
            turns.release()
            await yield_to_others()
            assert running == expected
        queue.limit_in_flight(3)
        await yield_to_others()
        assert running == 3
        for _ in range(12):
            turns.release()
        queue.close()
        await asyncio.wait_for(queue.wait_until_done(), 10)

    asyncio.run(scenario())
