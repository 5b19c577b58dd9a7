"""Slots for the requests to one origin."""

import asyncio
from collections.abc import Sequence

import pytest

from app.webhooks.request_slots import RequestSlots
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.anyio


async def waiting(slots: RequestSlots, *names: str) -> Sequence["asyncio.Task[None]"]:
    """Requests that wait for a slot, in this order."""
    assert not any(slots.try_acquire(name) for name in names)
    tasks = [asyncio.create_task(slots.acquire(name)) for name in names]
    await asyncio.sleep(0)
    return tasks


def held(slots: RequestSlots, name: str, count: int) -> None:
    assert [slots.try_acquire(name) for _ in range(count)] == [True] * count


async def test_each_url_has_a_slot_when_others_hold_all_shared_ones() -> None:
    slots = RequestSlots(2)
    held(slots, "a", 3)
    assert not slots.try_acquire("a")
    held(slots, "b", 1)
    assert not slots.try_acquire("b")
    held(slots, "c", 1)


async def test_shared_slots_are_granted_in_order_of_arrival() -> None:
    slots = RequestSlots(1)
    held(slots, "a", 2)
    held(slots, "b", 1)
    first, second = await waiting(slots, "b", "a")
    slots.release("a", True)
    await first
    assert not second.done()
    slots.release("b", True)
    await second


async def test_the_next_request_of_a_url_takes_its_own_slot() -> None:
    slots = RequestSlots(1)
    held(slots, "a", 2)
    held(slots, "b", 1)
    first, second = await waiting(slots, "b", "b")
    slots.release("b", True)
    await first
    assert not second.done()
    slots.release("b", True)
    await second
    slots.release("b", True)
    held(slots, "b", 1)


async def test_a_url_without_a_response_takes_no_shared_slot_until_one_is_answered() -> None:
    slots = RequestSlots(4)
    held(slots, "a", 3)
    (first,) = await waiting_after_silence(slots)
    slots.release("a", None)
    assert not first.done()
    slots.release("a", None)
    await first
    (second,) = await waiting(slots, "a")
    held(slots, "b", 5)
    for _ in range(4):
        slots.release("b", True)
    assert not second.done()
    slots.release("a", True)
    await second
    held(slots, "a", 4)


async def waiting_after_silence(slots: RequestSlots) -> Sequence["asyncio.Task[None]"]:
    slots.release("a", False)
    return await waiting(slots, "a")


async def test_urls_that_are_silent_leave_the_shared_slots_to_others() -> None:
    slots = RequestSlots(2)
    held(slots, "a", 3)
    held(slots, "b", 1)
    silent, answered = await waiting(slots, "a", "b")
    slots.release("a", False)
    await answered
    assert not silent.done()


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_cancelled_request_holds_no_slot(is_granted: bool) -> None:
    slots = RequestSlots(1)
    held(slots, "a", 2)
    (task,) = await waiting(slots, "a")
    if is_granted:
        slots.release("a", True)
    task.cancel()
    await until_async(task.done, "the task ends")
    if not is_granted:
        slots.release("a", True)
    held(slots, "a", 1)
    slots.release("a", True)
    slots.release("a", True)
    held(slots, "b", 2)
