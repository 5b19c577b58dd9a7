"""Set-up of the service's processes: signals, open files, garbage collection, background work."""

import asyncio
import ctypes
import faulthandler
import gc
import logging
import os
import resource
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Self, TypeVar

import uvloop

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_ARENAS_MAX: Final = 2
"""Heaps of the C library for all threads. By default there are up to eight for each core, and what
one thread frees in its heap is not reused by others."""

_MAPPED_BYTES_MIN: Final = 128 * 1024
"""Blocks of this size are returned to the system when they are freed, such as batches of the log.
By default the limit rises to the size of the largest block that was freed, and holes remain."""

_TRIM_S: Final = 60.0
"""Time between two returns of free memory; one takes some ms, however many objects are in use."""

_YOUNG_GENERATION: Final = 1

_COLLECTED_AT: Final = 10_000
"""New objects, more than were freed, at which the garbage collector runs."""

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_STARTED_S: Final = time.monotonic()


def run_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` on uvloop, which takes a fifth less processor time for a request than asyncio."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; the same signal again exits at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        _log.info("stopping", extra={"signal": number.name})
        stopping.set()
        # Only a repeated signal exits at once: Ctrl-C in a terminal reaches all processes, and
        # a parent may forward it as SIGTERM. This handler also works if the loop hangs.
        loop.remove_signal_handler(number)
        signal.signal(number, _end_at_once)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return stopping


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def allow_many_connections() -> None:
    """Raise the limit of open files to its maximum: each request in flight needs one."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def report_crashes() -> None:
    """Write the stacks of all threads to standard error if a native library crashes."""
    faulthandler.enable()


def return_freed_memory(trim_s: float = _TRIM_S) -> None:
    """Let the C library keep little of what is freed; call it before other threads are started.

    Otherwise a process with dozens of threads, most of them of librdkafka, grows for hours although
    it uses no more memory. Other C libraries than glibc have no such settings.

    Every `trim_s` seconds, a thread collects recent garbage, so that it does not lie between blocks
    in use, and returns the free pages between these.

    Source: mallopt(3), malloc_trim(3).
    """
    library = ctypes.CDLL(None)
    if mallopt := getattr(library, "mallopt", None):
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
    if malloc_trim := getattr(library, "malloc_trim", None):
        threading.Thread(
            target=_trim_heaps, args=(malloc_trim, trim_s), name="trim", daemon=True
        ).start()


def _trim_heaps(malloc_trim: Callable[[int], int], period_s: float) -> None:
    while True:
        time.sleep(until_next_tick(period_s))
        gc.collect(_YOUNG_GENERATION)
        malloc_trim(0)


def collect_rarely() -> None:
    """Run the cyclic garbage collector less often than by default.

    Thousands of events exist at any time, none of them in a cycle; scanning them took a third of a
    worker's time. What waits to be collected, mostly SQL statements, takes up to 2 MB.
    """
    gc.freeze()
    gc.set_threshold(_COLLECTED_AT, 10, 10)


def until_next_tick(period_s: float) -> float:
    """Return the seconds until the next of the moments that are `period_s` apart.

    They are the same for all callers in this process, so that it wakes once for several polls, and
    others in other processes, so that these do not query a database at the same time.
    """
    return period_s - (time.monotonic() - _STARTED_S) % period_s


async def on_own_thread(work: Callable[[], T]) -> T:
    """Run `work` on a daemon thread of its own, and return its result.

    For calls that may hang: they occupy no thread of the loop's pool, and do not delay the exit of
    the process.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def set_outcome(setter: Callable[[Any], None], value: object) -> None:
        if not outcome.done():
            setter(value)

    def run() -> None:
        setter: Callable[[Any], None] = outcome.set_result
        value: object
        try:
            value = work()
        except Exception as error:
            setter, value = outcome.set_exception, error
        # A closed loop has no waiters.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(set_outcome, setter, value)

    threading.Thread(target=run, name=f"aside-{id(outcome):x}", daemon=True).start()
    return await outcome


class BackgroundTask(ABC):
    """A task that runs during the `async with` of its object.

    If an error ends it, the error is logged as the event `ended_as`, and the process continues.
    """

    def __init__(self, log: logging.Logger, ended_as: str) -> None:
        self._failure_log = log
        self._ended_as = ended_as
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _run(self) -> None:
        """Work until cancelled."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._log_failure)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # logged by the callback
            await self._task

    def _log_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure_log.error(self._ended_as, exc_info=error)
