"""The delivery queue of one endpoint, and the sender tasks that drain it.

Live deliveries and replays differ in what `send` does with a failed attempt. A live delivery leaves
its sender task free and is put back when its retry is due. A batch of a replay keeps its task until
the last attempt, so that with one task the events arrive in order.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterator
from typing import Any, Generic, Protocol, TypeVar


class Delivery(Protocol):
    """An event or a batch of events for one endpoint; compared and hashed by identity."""

    @property
    def size_bytes(self) -> int:
        """Bytes that it holds in memory."""


D = TypeVar("D", bound=Delivery)

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class DeliveryQueue(Generic[D]):
    """Deliveries in order, sent by up to `in_flight_max` sender tasks. For one event loop.

    A delivery is in the queue from `add` until `remove`: it is ready, in flight, or waits for a
    retry. A sender task starts when a delivery becomes ready, and ends when none is, or when
    `may_send` returns False.
    """

    def __init__(
        self,
        send: Callable[[D], Awaitable[None]],
        in_flight_max: int,
        start_task: StartTask,
        may_send: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._send = send
        self._in_flight_max = in_flight_max
        self._start_task = start_task
        self._may_send = may_send
        self._deliveries: set[D] = set()
        self._ready: deque[D] = deque()
        self._senders: set[asyncio.Task[None] | None] = set()
        self._is_closed = False
        self._is_done = asyncio.Event()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._deliveries)

    def __contains__(self, delivery: D) -> bool:
        return delivery in self._deliveries

    @property
    def is_idle(self) -> bool:
        """Whether it holds no delivery and runs no sender task."""
        return not self._deliveries and not self._senders

    @property
    def ready_count(self) -> int:
        """The number of deliveries that are ready to be sent."""
        return len(self._ready)

    @property
    def senders_count(self) -> int:
        """The number of sender tasks, which have a request in flight or wait to send one."""
        return len(self._senders)

    def add(self, delivery: D, *, is_ready: bool = True) -> None:
        """Add a delivery behind the others; `requeue` makes it ready if it is not."""
        self._deliveries.add(delivery)
        self.size_bytes += delivery.size_bytes
        if is_ready:
            self._ready.append(delivery)
            self.start_senders(1)

    def requeue(self, delivery: D, *, in_front: bool = True) -> None:
        """Make a delivery of the queue ready, in front of the others or behind them."""
        if in_front:
            self._ready.appendleft(delivery)
        else:
            self._ready.append(delivery)
        self.start_senders(1)

    def remove(self, delivery: D) -> None:
        """Remove a delivery that is not ready."""
        if delivery in self._deliveries:
            self._deliveries.remove(delivery)
            self.size_bytes -= delivery.size_bytes
            if self._is_closed:
                self._check_done()

    def take_ready(self) -> Iterator[D]:
        """Yield the ready deliveries, oldest first; each stays in the queue and is not ready."""
        while self._ready:
            yield self._ready.popleft()

    def take_newest(self) -> D | None:
        """The newest ready delivery, which stays in the queue and is not ready; None without."""
        return self._ready.pop() if self._ready else None

    def withdraw(self, is_withdrawn: Callable[[D], bool]) -> None:
        """Make some deliveries not ready."""
        self._ready = deque(each for each in self._ready if not is_withdrawn(each))

    def __iter__(self) -> Iterator[D]:
        return iter(self._deliveries)

    def contains_any(self, is_wanted: Callable[[D], bool]) -> bool:
        """Whether it holds one of some deliveries."""
        return any(is_wanted(each) for each in self._deliveries)

    def remove_all(self, is_removed: Callable[[D], bool]) -> list[D]:
        """Remove some deliveries that are not ready, and return them."""
        removed = [each for each in self._deliveries if is_removed(each)]
        for delivery in removed:
            self.remove(delivery)
        return removed

    def limit_in_flight(self, in_flight_max: int) -> None:
        """Change the number of sender tasks; those above a lower limit end after their delivery."""
        self._in_flight_max = in_flight_max
        self.start_senders(len(self._ready))

    def start_senders(self, count: int) -> None:
        """Start up to `count` further sender tasks."""
        for _ in range(min(count, self._in_flight_max - len(self._senders))):
            self._senders.add(self._start_task(self._run_sender()))

    def close(self) -> None:
        """Declare that no delivery will be added."""
        self._is_closed = True
        self._check_done()

    async def wait_until_done(self) -> None:
        """Return when the queue is closed, and no delivery and no sender task is left."""
        await self._is_done.wait()

    def stop(self, in_request: Container["asyncio.Task[None] | None"] = ()) -> None:
        """Drop all deliveries and cancel the sender tasks, except those that are in a request."""
        self._ready.clear()
        self._deliveries.clear()
        self._is_closed = True
        for task in [each for each in self._senders if each not in in_request]:
            # A task that never ran does not reach its own `finally`.
            self._senders.discard(task)
            if task is not None:
                task.cancel()
        self._check_done()

    async def _run_sender(self) -> None:
        may_send = self._may_send
        try:
            while (
                self._ready
                and len(self._senders) <= self._in_flight_max
                and (may_send is None or await may_send())
            ):
                # Another task may have taken the last one during `may_send`.
                if self._ready:
                    await self._send(self._ready.popleft())
        finally:
            self._senders.discard(asyncio.current_task())
            self._check_done()

    def _check_done(self) -> None:
        if self._is_closed and not self._deliveries and not self._senders:
            self._is_done.set()
