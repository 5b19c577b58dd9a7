"""How the parts that the service needs are, for the head of every page."""

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from app.api.doors import Doors

FRESH_S: Final = 5.0
"""However many pages are asked for, the parts are asked no more often than this."""

PATIENCE_S: Final = 0.5
"""How long a page waits to learn it; without an answer, it shows what was last known."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts: its name, whether it is well, and in a few words how it is."""

    name: str
    is_well: bool
    words: str


Health = tuple[Part, ...]

UNKNOWN: Final[Health] = (
    Part("database", False, "no answer yet"),
    Part("log", False, "no answer yet"),
)


class HealthWatch:
    """Asks the parts, once for all pages of a process."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._known = UNKNOWN
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def read(self) -> Health:
        """How they are: from less than `FRESH_S` ago, if they answer."""
        if time.monotonic() - self._asked_s >= FRESH_S and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=PATIENCE_S)
        return self._known

    async def _ask(self) -> None:
        try:
            missing = await self._doors.readiness.missing()
            self._known = tuple(_part(name, missing) for name in ("database", "log"))
            self._asked_s = time.monotonic()
        finally:
            self._asking = None


def _part(name: str, missing: tuple[str, ...]) -> Part:
    is_well = name not in missing
    return Part(name, is_well, "answers" if is_well else "does not answer")
