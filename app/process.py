"""What the processes have in common: signals, open files, rare garbage, and side threads."""

import asyncio
import gc
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, TypeVar

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; the same signal again ends the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        _log.info("stopping", extra={"signal": number.name})
        stopping.set()
        # Only the same signal again means haste: Ctrl-C in a terminal reaches a whole family of
        # processes, and a parent may pass it on as SIGTERM. This one works if the loop hangs, too.
        loop.remove_signal_handler(number)
        signal.signal(number, _end_at_once)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return stopping


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def allow_many_connections() -> None:
    """Take as many open files as the system gives: each request in flight is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def collect_rarely() -> None:
    """Look for garbage in circles less often than Python does by itself.

    Thousands of events come and go at any time, none of them in a circle; to look through them
    every few hundred took a third of a worker's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


async def on_own_thread(work: Callable[[], T]) -> T:
    """What `work` gives, or raises, on a thread that nothing else waits for.

    For what may hang and must not hold anything up: it takes none of the few threads that the
    loop has for all, and the process ends without it.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(setter: Callable[[Any], None], value: object) -> None:
        if not outcome.done():
            setter(value)

    def run() -> None:
        setter: Callable[[Any], None] = outcome.set_result
        value: object
        try:
            value = work()
        except Exception as error:
            setter, value = outcome.set_exception, error
        # Of a loop that is closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, setter, value)

    threading.Thread(target=run, name=f"aside-{id(outcome):x}", daemon=True).start()
    return await outcome
