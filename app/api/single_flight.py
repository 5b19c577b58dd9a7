"""Questions that take a thread and a while: the same one is not asked twice at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.concurrency import run_in_threadpool

Topic = TypeVar("Topic", bound=Hashable)
Answer = TypeVar("Answer")


class SingleFlight(Generic[Topic, Answer]):
    """Asks in a thread; whoever comes with the same topic meanwhile waits for the same answer.

    `run` has the thread: one of those that the loop has for all, unless it says otherwise.
    """

    def __init__(
        self,
        run: Callable[[Callable[[], Answer]], Coroutine[Any, Any, Answer]] = run_in_threadpool,
    ) -> None:
        self._run = run
        self._flights: dict[Topic, asyncio.Task[Answer]] = {}

    async def ask(self, topic: Topic, question: Callable[[], Answer]) -> Answer:
        """The answer to `question`, or its error. A caller that is cancelled cancels no other."""
        flight = self._flights.get(topic)
        if flight is None:
            flight = asyncio.create_task(self._run(question))
            self._flights[topic] = flight
            flight.add_done_callback(partial(self._land, topic))
        return await asyncio.shield(flight)

    def _land(self, topic: Topic, flight: asyncio.Task[Answer]) -> None:
        del self._flights[topic]
        # Looked at here too, or an error that nobody waited for would be logged as lost.
        if not flight.cancelled():
            flight.exception()
