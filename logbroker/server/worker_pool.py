"""Threads for work that would block the event loop: flushes, uncached reads, deletions.

Results return through `SocketLoop.call_soon`, so no handler needs a lock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from logbroker.server.loop import SocketLoop

T = TypeVar("T")

WORK_S: Final = 0.0002
PAUSE_S: Final = 0.0002


class Pauses:
    """Lets the loop's thread have the interpreter while one other thread computes for long.

    Otherwise the loop waits a switch interval for each of its system calls: it served a sixth of
    the requests.
    """

    def __init__(self) -> None:
        self._due_s = 0.0

    def pause(self) -> None:
        """Sleep for `PAUSE_S` if the thread has worked for `WORK_S`."""
        if time.perf_counter() >= self._due_s:
            time.sleep(PAUSE_S)
            self._due_s = time.perf_counter() + WORK_S


class WorkerPool:
    """A fixed number of threads that run calls in the order of submission.

    A call wakes one thread, the one that became idle last. Those of a `queue.SimpleQueue` wake in
    pairs: the one that takes an item releases the lock for which the next one waits.
    """

    def __init__(self, loop: SocketLoop, name: str, threads: int) -> None:
        self._loop = loop
        self._is_abandoned = False
        self._calls: deque[Callable[[], None] | None] = deque()
        self._idle: list[threading.Lock] = []
        """The locks for which idle threads wait; the thread that removes one releases it."""
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `call` on a thread, then `done` with its result or error on the loop's thread."""

        def work() -> None:
            try:
                result: T | Exception = call()
            except Exception as error:
                # `done` handles the error; raised here, it would end the thread.
                result = error
            self._loop.call_soon(lambda: done(result))

        self._add(work)

    def submit_metered(
        self,
        call: Callable[[], T],
        count: Callable[[float], None],
        done: Callable[[T | Exception], None],
    ) -> None:
        """As `submit`; before `done` it calls `count` with the processor seconds of `call`."""
        seconds = 0.0

        def metered() -> T:
            nonlocal seconds
            began_s = time.thread_time()
            try:
                return call()
            finally:
                seconds = time.thread_time() - began_s

        def finished(result: T | Exception) -> None:
            count(seconds)
            done(result)

        self.submit(metered, finished)

    def close(self) -> None:
        """Finish all submitted calls, then end the threads."""
        for _ in self._threads:
            self._add(None)
        for thread in self._threads:
            thread.join()

    def abandon(self, timeout_s: float) -> None:
        """Start no further call and wait up to `timeout_s` for the running ones.

        A call that takes longer ends on its own; its result is dropped.
        """
        self._is_abandoned = True
        for _ in self._threads:
            self._add(None)
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _add(self, call: Callable[[], None] | None) -> None:
        self._calls.append(call)
        with suppress(IndexError):  # all threads are busy; the first that is not takes the call
            self._idle.pop().release()

    def _next_call(self, wake: threading.Lock) -> Callable[[], None] | None:
        """Wait for a call, or None for the end; `wake` is the calling thread's lock."""
        while True:
            with suppress(IndexError):
                return self._calls.popleft()
            self._idle.append(wake)
            if self._calls:
                # It was added when this thread was not idle yet, so it may have woken none.
                with suppress(ValueError):  # another thread has removed it: see below
                    self._idle.remove(wake)
                    continue
            wake.acquire()

    def _work(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        while (call := self._next_call(wake)) is not None:
            if not self._is_abandoned:
                call()
            # An idle thread must not keep references of its last call alive.
            del call
