"""Long work on the event loop, in turns: between them other tasks run."""

import asyncio
import time
from typing import Final

TURN_S: Final = 0.004
"""Longer turns would delay deliveries; shorter ones would cost more than they save."""


class LoopTurns:
    """Measures the current turn of a piece of work."""

    def __init__(self) -> None:
        self._end_s = time.monotonic() + TURN_S

    async def yield_if_long(self) -> None:
        """Let other tasks run if the turn has lasted `TURN_S`."""
        if time.monotonic() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = time.monotonic() + TURN_S
