"""Blocking calls that run in a thread, once at a time for each key."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

from anyio import to_thread

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """Runs a call in a thread; concurrent callers with the same key share its result.

    `run` chooses the thread: by default one of the event loop's worker threads.
    """

    def __init__(
        self,
        run: Callable[[Callable[[], Result]], Coroutine[Any, Any, Result]] = to_thread.run_sync,
    ) -> None:
        self._run = run
        self._tasks: dict[Key, asyncio.Task[Result]] = {}

    async def call(self, key: Key, function: Callable[[], Result]) -> Result:
        """The result of `function`, or its error. Cancelling one caller leaves the others alone."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(self._run(function))
            self._tasks[key] = task
            task.add_done_callback(partial(self._finish, key))
        return await asyncio.shield(task)

    def _finish(self, key: Key, task: asyncio.Task[Result]) -> None:
        del self._tasks[key]
        # Retrieved here as well: asyncio logs an error that no caller has retrieved.
        if not task.cancelled():
            task.exception()
