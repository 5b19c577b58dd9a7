"""What the processes have in common: signals, open files, and rare garbage."""

import asyncio
import gc
import logging
import os
import resource
import signal
from types import FrameType
from typing import Final

_log: Final = logging.getLogger(__name__)

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
