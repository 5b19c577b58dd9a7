"""Finds out what a replay is to bring: which offsets to read, and which of them are missing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from app.log.errors import HistoryLost, TopicMissing, WindowNotRetained
from app.log.outcomes import LiveOutcome, decode_outcome
from app.log.reader import Passage, ReplayReader
from app.log.topics import DELIVERY_OUTCOMES
from app.replay.lateness import disorder_ms
from app.replay.model import OffsetRange, Replay, Window
from app.replay.offset_set import OffsetSet
from app.replay.options import Only
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
            lambda partition: equipment.store.late_end(partition, replay.window),
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

    def _delivered(self, offsets: OffsetRange, is_wanted: IsWanted) -> OffsetSet:
        """The offsets that live deliveries brought; whatever is not known of counts as missing."""
        delivered = OffsetSet()
        try:
            window, outcomes = self._outcomes()
        except TopicMissing:
            return delivered
        with closing(self._outcome_reader(window, outcomes)) as reader:
            try:
                while not reader.is_done and is_wanted():
                    _note_delivered(reader.read(), offsets, delivered)
            except HistoryLost as error:
                self._journal.warn("outcomes-lost", reason=error)
        if delivered.is_full:
            self._journal.warn("outcomes-not-all-known")
        return delivered

    def _outcomes(self) -> tuple[Window, OffsetRange]:
        """Where the outcomes of the window lie, or what is left of it."""
        window = self._replay.window
        try:
            return window, self._look_up_outcomes(window)
        except WindowNotRetained as refusal:
            left = replace(window, from_ms=max(window.from_ms, refusal.available_from_ms))
            return left, self._look_up_outcomes(left)

    def _look_up_outcomes(self, window: Window) -> OffsetRange:
        settings, delays_s = self._equipment.settings, self._equipment.settings.attempt_delays_s
        attempts_ms = round(1_000 * (sum(delays_s) + len(delays_s) * settings.delivery_timeout_s))
        behind_ms = disorder_ms(settings.lateness_ms) + attempts_ms
        return self._equipment.outcomes.offsets_for(self._replay.webhook_id, window, behind_ms)

    def _outcome_reader(self, window: Window, outcomes: OffsetRange) -> ReplayReader:
        settings = self._equipment.settings
        return ReplayReader(
            settings.bootstrap_servers,
            DELIVERY_OUTCOMES,
            outcomes,
            key=self._replay.webhook_id.encode(),
            window=window,
            # What another data centre delivered lies at other offsets of another log.
            origin=settings.origin,
            properties=settings.kafka_properties,
        )


def _page_of_failures(parent_id: str, after: int, store: Store) -> tuple[int, ...]:
    return store.failed_offsets(parent_id, after, _OFFSETS_PER_PAGE)


def _note_delivered(passage: Passage, offsets: OffsetRange, delivered: OffsetSet) -> None:
    for event in passage.events:
        outcome = decode_outcome(event.value)
        if outcome is None or outcome.outcome is not LiveOutcome.DELIVERED:
            continue
        if outcome.partition == offsets.partition and offsets.start <= outcome.offset < offsets.end:
            delivered.add(outcome.offset)
