"""Reports to the audit what a stage received, before the stage commits its position.

So a crash causes duplicates in the audit, and never a received record that seems lost.
"""

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Final

from app.config import Settings
from app.log.event import LoggedEvent
from app.log.publisher import EventPublisher
from logbroker.client.audit_format.report import NAME_BYTES_MAX
from logbroker.client.received_counter import ReceivedCounter

AT_ONCE_RECORDS: Final = 100
"""Fewer wait for `QUIET_S`: a report of a few records would be as large as the records."""

QUIET_S: Final = 1.0

_SERVER_BYTES_MAX: Final = NAME_BYTES_MAX - 7
"""The part of a server's name that leaves room for the id of the run."""

_LAST_REPORT_S: Final = 2.0
"""How long revoked partitions wait for it; supervisors wait ten seconds in all."""


class ReceivedReports:
    """Counts and reports what one stage received; for the stage's event loop only."""

    def __init__(self, publisher: EventPublisher, topic: str, tier: str, consumer: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self._counter = ReceivedCounter(tier, consumer)
        self._counted = 0
        self._next_s = 0.0
        self._reporting = asyncio.Lock()

    @classmethod
    def of(
        cls, settings: Settings, publisher: EventPublisher, topic: str, group: str
    ) -> "ReceivedReports | None":
        """Create the reports of a group member; None without an audit."""
        if not settings.audit:
            return None
        # As in producer names, an id of the run follows the server.
        server = settings.server.encode()[:_SERVER_BYTES_MAX].decode("utf-8", "ignore")
        consumer = f"{server}/{secrets.token_hex(3)}"
        return cls(publisher, topic, f"{group}@{settings.origin}", consumer)

    def count_event(self, event: LoggedEvent) -> None:
        """Count a received record."""
        self._counted += 1
        self._counter.count_message(self._topic, event.audit)

    async def report_before_commit(self) -> bool:
        """Report what was counted; return False if it is too early, so that nothing is committed.

        If `audit` rejects the report it is kept for a retry, and the commit may follow.
        """
        if not (self._counted or self._reporting.locked()):
            return True
        if 0 < self._counted < AT_ONCE_RECORDS and time.monotonic() < self._next_s:
            return False
        await self._report()
        return True

    async def report_before_release(self) -> None:
        """Report what was counted before partitions are released, within a time limit."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._report(), _LAST_REPORT_S)

    async def _report(self) -> None:
        # One at a time, so that a second caller also waits for the reports of the first.
        async with self._reporting:
            self._counted = 0
            self._next_s = time.monotonic() + QUIET_S
            await self._publisher.report_to_audit(self._counter.take_reports())
