"""What a stage received, told to the audit before the stage stores that it is done with it.

So a crash makes the audit count some records twice, and never miss one that was received.
"""

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Final

from app.config import Settings
from app.log.event import LoggedEvent
from app.log.publisher import EventPublisher
from logbroker.client.audit_event import NAME_BYTES_MAX
from logbroker.client.receipts import ReceiptBook

AT_ONCE_RECORDS: Final = 100
"""Fewer are kept for `QUIET_S`: a receipt for each of a few records would be as large as they."""

QUIET_S: Final = 1.0

_SERVER_BYTES_MAX: Final = NAME_BYTES_MAX - 7
"""Of a server's name that has the room for it."""

_LAST_S: Final = 2.0
"""How long partitions that are let go wait for it; supervisors wait ten in all."""


class Receipts:
    """The receipts of one stage, which are told through a publisher; used on its loop alone."""

    def __init__(self, publisher: EventPublisher, topic: str, tier: str, consumer: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self._book = ReceiptBook(tier, consumer)
        self._noted = 0
        self._next_s = 0.0
        self._telling = asyncio.Lock()

    @classmethod
    def of(
        cls, settings: Settings, publisher: EventPublisher, topic: str, group: str
    ) -> "Receipts | None":
        """Those of a group's member; None where nothing is audited."""
        if not settings.audit:
            return None
        # Behind it, as of producers, what tells one run of a server from another.
        server = settings.server.encode()[:_SERVER_BYTES_MAX].decode("utf-8", "ignore")
        consumer = f"{server}/{secrets.token_hex(3)}"
        return cls(publisher, topic, f"{group}@{settings.origin}", consumer)

    def note(self, event: LoggedEvent) -> None:
        """A record that was read and taken."""
        self._noted += 1
        self._book.note(self._topic, event.audit)

    async def cover(self) -> bool:
        """Tell of all that was noted before; False when it is too early, and nothing was told.

        Where `audit` takes nothing it is kept for later: deliveries go on.
        """
        if not (self._noted or self._telling.locked()):
            return True
        if 0 < self._noted < AT_ONCE_RECORDS and time.monotonic() < self._next_s:
            return False
        await self._tell()
        return True

    async def cover_last(self) -> None:
        """Tell of all that was noted before partitions are given away, within bounds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._tell(), _LAST_S)

    async def _tell(self) -> None:
        # One at a time: whoever comes second waits for what the first one took, too.
        async with self._telling:
            self._noted = 0
            self._next_s = time.monotonic() + QUIET_S
            await self._publisher.tell_audit(self._book.take())
