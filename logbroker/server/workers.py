"""Work that would stall the loop: flushes, cold reads, deletions, each on a thread beside it.

Every result comes home through `SocketLoop.call_soon`, so no handler needs a lock.
"""

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from logbroker.server.loop import SocketLoop

log = logging.getLogger("logbroker.workers")

T = TypeVar("T")


class Workers:
    """A fixed crew of threads that run calls in the order in which they were asked."""

    def __init__(self, loop: SocketLoop, name: str, threads: int) -> None:
        self._loop = loop
        self._is_abandoned = False
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, call: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `call` on a thread, then `done` with its result or error on the loop's thread."""

        def work() -> None:
            try:
                result: T | Exception = call()
            except Exception as error:
                # The loop's thread knows what the error means; here it would end the crew.
                result = error
            self._loop.call_soon(lambda: done(result))

        self._calls.put(work)

    def close(self) -> None:
        """Finish what was asked, then end the threads."""
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def abandon(self, patience_s: float) -> None:
        """Begin nothing more, and wait so many seconds at most for what has begun.

        What takes longer ends by itself, and its result is told to nobody.
        """
        self._is_abandoned = True
        for _ in self._threads:
            self._calls.put(None)
        end_s = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if not self._is_abandoned:
                call()
            # An idle thread must not hold on to what its last call has seen.
            del call
