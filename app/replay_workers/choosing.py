"""Finds out what a replay is to bring: which offsets to read, and which of them are missing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from app.domain.lateness import disorder_ms
from app.domain.model import OffsetRange, Replay
from app.domain.offset_set import OffsetSet
from app.domain.options import Only
from app.log.delivered import DeliveredEvents, LiveDeliveries
from app.replay_workers.equipment import Equipment
from app.replay_workers.errors import ReplayRefused
from app.replay_workers.journal import Journal
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.selection import Selection
from app.store import ReplayNotFound, Store

_OFFSETS_PER_PAGE: Final = 10_000

IsWanted = Callable[[], bool]
"""Whether anybody still waits for the answer."""


class Chooser:
    """Answers for one replay, from the store and the log."""

    def __init__(
        self, replay: Replay, equipment: Equipment, lease: LeaseKeeper, journal: Journal
    ) -> None:
        self._replay = replay
        self._equipment = equipment
        self._lease = lease
        self._journal = journal

    async def offsets(self) -> OffsetRange:
        """The offsets to read: those of the window, or of the failures that are to be retried.

        Raises:
            ReplayRefused: the replay whose failures are asked for is not there.
            WindowNotRetained: records of the window may have been deleted already.
            LogUnavailable: the log does not answer.
        """
        if self._replay.retry_of is None:
            return await asyncio.to_thread(self._look_up)
        return await self._offsets_of_failures(self._replay.retry_of)

    async def selection(self, offsets: OffsetRange, is_wanted: IsWanted) -> Selection:
        """Which of the records in `offsets` are to be delivered.

        Raises:
            LogUnavailable: the log does not answer.
        """
        options, failed, delivered = self._replay.options, None, None
        if self._replay.retry_of is not None:
            failed = await self._failed(self._replay.retry_of, offsets)
        if options.only is Only.FAILED:
            delivered = await asyncio.to_thread(self._delivered, offsets, is_wanted)
        return Selection(options.event_types, failed, delivered)

    def _look_up(self) -> OffsetRange:
        replay, equipment = self._replay, self._equipment
        return equipment.history.offsets_for(
            replay.webhook_id,
            replay.window,
            disorder_ms(equipment.settings.lateness_ms),
            lambda partition: equipment.store.late_end_offset(
                partition, replay.window, origin=equipment.settings.origin
            ),
        )

    async def _offsets_of_failures(self, parent_id: str) -> OffsetRange:
        """From the first failure to the last, in the partition where the parent found them."""
        try:
            parent = await self._lease.ask(lambda store: store.replay(parent_id))
        except ReplayNotFound as error:
            raise ReplayRefused(str(error)) from error
        first = last = None
        async for page in self._pages_of_failures(parent_id):
            first, last = page[0] if first is None else first, page[-1]
        if parent.offsets is None or first is None or last is None:
            raise ReplayRefused(f"replay {parent_id} has no failures")
        return OffsetRange(parent.offsets.partition, first, last + 1)

    async def _failed(self, parent_id: str, offsets: OffsetRange) -> OffsetSet:
        # Each of them is to be delivered: there are as many pages as it takes.
        failed = OffsetSet(pages_max=offsets.end - offsets.start)
        async for page in self._pages_of_failures(parent_id):
            for offset in page:
                failed.add(offset)
        return failed

    async def _pages_of_failures(self, parent_id: str) -> AsyncIterator[tuple[int, ...]]:
        after = -1
        while page := await self._lease.ask(partial(_page_of_failures, parent_id, after)):
            yield page
            after = page[-1]

    def _delivered(self, offsets: OffsetRange, is_wanted: IsWanted) -> DeliveredEvents:
        """The events that live deliveries brought; whatever is not known of counts as missing."""
        replay, equipment = self._replay, self._equipment
        deliveries = LiveDeliveries(
            equipment.settings,
            equipment.outcomes,
            replay.webhook_id,
            replay.window,
            equipment.store.late_recorded_ms(
                offsets.partition, replay.window, origin=equipment.settings.origin
            ),
        )
        found = deliveries.delivered(offsets, is_wanted)
        if found.lost is not None:
            self._journal.warn("outcomes-lost", reason=found.lost)
        if found.events.is_full:
            self._journal.warn("outcomes-not-all-known")
        return found.events


def _page_of_failures(parent_id: str, after: int, store: Store) -> tuple[int, ...]:
    return store.failed_offsets(parent_id, after, _OFFSETS_PER_PAGE)
