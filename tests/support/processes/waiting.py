"""Waiting for conditions, with a deadline that a busy machine keeps."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

DEADLINE_S: Final = 180.0
"""How long anything may take on a machine that is busy with other tests."""

POLL_S: Final = 0.01
POLL_MAX_S: Final = 0.1


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until `condition` holds; `what` names the condition where a test fails."""
    start_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start_s
        assert waited_s < deadline_s, f"never: {what}"
        time.sleep(pause_s(waited_s))


async def until_async(condition: Callable[[], object], what: str) -> None:
    """As `until`, on a loop whose other tasks run meanwhile."""
    start_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start_s
        assert waited_s < DEADLINE_S, f"never: {what}"
        await asyncio.sleep(pause_s(waited_s))


def pause_s(waited_s: float) -> float:
    """The pause before the next check of a condition that was waited for so long already.

    A check often costs a request or a file. This pause finds a condition that took a second
    within 50 ms, and leaves the processors to the processes under test.
    """
    return min(max(POLL_S, waited_s / 20), POLL_MAX_S)
