"""Waits for conditions, with a deadline that busy machines keep."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 180.0
"""The deadline of any wait on a busy machine."""

POLL_S: Final = 0.01
POLL_MAX_S: Final = 0.1


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until `condition` holds. `what` names it in the message of a failed test."""
    start_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start_s
        assert waited_s < deadline_s, f"never: {what}"
        time.sleep(pause_s(waited_s))


async def until_async(condition: Callable[[], object], what: str) -> None:
    """Wait as `until` does, without blocking the event loop."""
    start_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start_s
        assert waited_s < DEADLINE_S, f"never: {what}"
        await asyncio.sleep(pause_s(waited_s))


def pause_s(waited_s: float) -> float:
    """Return the pause before the next check after a wait of this length.

    A check often costs a request or a file. This pause finds a condition that took a second
    within 50 ms, and leaves the processors to the processes under test.
    """
    return min(max(POLL_S, waited_s / 20), POLL_MAX_S)
