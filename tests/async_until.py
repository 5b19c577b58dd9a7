"""Waiting on a loop whose other tasks go on meanwhile."""

import asyncio
import time
from collections.abc import Callable

from processes import DEADLINE_S, pause_s


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` holds; `what` tells the reader of a failure what never came."""
    start_s = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - start_s
        assert waited_s < DEADLINE_S, f"never: {what}"
        await asyncio.sleep(pause_s(waited_s))
