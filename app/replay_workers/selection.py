"""Which events a replay delivers: the offsets to read, and the events to skip."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from app.config import Settings
from app.domain.lateness import disorder_ms
from app.domain.minute_index import WindowNotes
from app.domain.model import NewReplay, OffsetRange, Replay, Window, recovered_origin
from app.domain.options import Only, ReplayReason, Source
from app.domain.type_filter import TypeFilter
from app.log.delivered import DeliveredEvents, LiveDeliveries
from app.log.errors import WindowNotRetained
from app.log.event import LoggedEvent
from app.log.history import LogHistory
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.errors import ReplayRefused
from app.replay_workers.handover import take_over_from_live
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.replay_log import ReplayLog
from app.replay_workers.replayed import ReplayedEvents, is_of_origin, read_replayed
from app.replay_workers.retried import RetriedOffsets, TooManyRetries, read_retried
from app.store import NothingToRetry, ReplayNotFound, Store

GAP_RECORDS_MIN: Final = 10_000
"""To read fewer records takes about as long as to find out that they can be skipped."""


def locate_window(
    history: LogHistory, store: Store, settings: Settings, replay: Replay | NewReplay
) -> OffsetRange:
    """The offsets of a replay's window in the log of this data centre, as of now. Blocks.

    Raises:
        WindowNotRetained: the log may have deleted records of the window.
        LogUnavailable: the log does not respond.
    """
    return history.offsets_for(
        replay.webhook_id,
        replay.window,
        disorder_ms(settings.lateness_ms),
        partial(_read_notes, store, settings.origin, replay.window),
    )


def _read_notes(store: Store, origin: str, window: Window, partition: int) -> WindowNotes:
    late_end = store.late_end_offset(partition, window, origin=origin)
    return WindowNotes(late_end or 0, store.indexed_window(partition, window, origin=origin))


async def no_gap() -> range:
    """No offsets."""
    return range(0)


@dataclass(slots=True)
class Selection:
    """The events that the options of a replay select.

    `origin` limits a recovery to the events that its data centre delivers. `retried` limits a
    retry to what its parent left. `delivered` are live deliveries to skip, and `replayed` those of
    earlier replays. `find_gap` returns the offsets that have no events of the window: none, or at
    least `GAP_RECORDS_MIN`. It raises LogUnavailable if the log does not respond.
    """

    types: TypeFilter = field(default_factory=TypeFilter)
    origin: str | None = None
    retried: RetriedOffsets | None = None
    delivered: DeliveredEvents | None = None
    replayed: ReplayedEvents | None = None
    find_gap: Callable[[], Awaitable[range]] = no_gap

    def includes(self, event: LoggedEvent) -> bool:
        """Whether the event's type, origin and offset are selected."""
        if not self.types.matches(event.event_type) or not is_of_origin(event, self.origin):
            return False
        return self.retried is None or event.offset in self.retried

    def is_delivered(self, event: LoggedEvent) -> bool:
        """Whether the event is to be skipped because it was delivered live or by a replay."""
        if self.delivered is not None and event in self.delivered:
            return True
        return self.replayed is not None and event in self.replayed


class SelectionReader:
    """Reads from the store and the log what one replay selects."""

    def __init__(
        self,
        replay: Replay,
        dependencies: WorkerDependencies,
        lease: LeaseKeeper,
        replay_log: ReplayLog,
    ) -> None:
        self._replay = replay
        self._dependencies = dependencies
        self._lease = lease
        self._log = replay_log
        self.available_from_ms: int | None = None
        """The start of what a recovery found in the log, if its window starts before that."""

    async def read_offsets(self) -> OffsetRange:
        """The offsets to read: those of the window, or of what is to be retried.

        Raises:
            ReplayRefused: the replay to retry does not exist, or delivered everything.
            WindowNotRetained: records of the window may be deleted.
            LogUnavailable: the log does not respond.
        """
        if self._replay.retry_of is None:
            return await asyncio.to_thread(self._window_offsets)
        return await self._offsets_to_retry(self._replay.retry_of)

    async def read_selection(
        self, offsets: OffsetRange, continues: Callable[[], bool]
    ) -> Selection:
        """Which records in `offsets` to deliver. Reading ends when `continues` returns False.

        Raises:
            LogUnavailable: the log does not respond.
            ReplayPostponed: the live path does not hand over its events.
        """
        replay, options = self._replay, self._replay.options
        retried = delivered = replayed = None
        if replay.retry_of is not None:
            retried = await self._retried(replay.retry_of, offsets)
        if options.only is Only.FAILED:
            if options.target_url is None:
                await self._take_over_from_live(offsets, continues)
            delivered = await asyncio.to_thread(self._delivered, offsets, continues)
            replayed = await self._lease.query(lambda store: read_replayed(store, replay, offsets))
        types = TypeFilter(options.event_types)
        origin = recovered_origin(replay.reason, replay.origin)
        find_gap = partial(self._find_gap, offsets)
        return Selection(types, origin, retried, delivered, replayed, find_gap)

    async def _find_gap(self, offsets: OffsetRange) -> range:
        """The offsets after the window's last indexed event that need not be read."""
        replay = self._replay
        is_short = offsets.end - offsets.start < GAP_RECORDS_MIN
        if is_short or replay.source is not Source.LOG:
            return range(0)
        origin = self._dependencies.settings.origin
        indexed = await self._lease.query(
            lambda store: store.indexed_window(offsets.partition, replay.window, origin=origin)
        )
        if indexed is None:
            return range(0)
        gap = indexed.gap_from(offsets.start)
        if len(gap) < GAP_RECORDS_MIN or gap.start >= offsets.end:
            return range(0)
        newest = await asyncio.to_thread(
            self._dependencies.history.first_since, offsets.partition, indexed.newest.time_ms
        )
        if newest != indexed.newest:
            return range(0)  # the index is of a log that was recreated or truncated
        self._log.info("skipping", offsets=f"{offsets.partition}:{gap.start}-{gap.stop}")
        return gap

    async def _take_over_from_live(
        self, offsets: OffsetRange, continues: Callable[[], bool]
    ) -> None:
        await take_over_from_live(
            self._replay,
            offsets,
            self._lease,
            continues,
            settings=self._dependencies.settings,
            outcomes=self._dependencies.outcome_publisher,
        )

    def _window_offsets(self) -> OffsetRange:
        replay = self._replay
        while True:
            try:
                return self._offsets_of(replay)
            except WindowNotRetained as refusal:
                from_ms = refusal.available_from_ms
                is_lost = not replay.window.from_ms < from_ms < replay.window.to_ms
                if replay.reason is not ReplayReason.RECOVERY or is_lost:
                    raise
                self.available_from_ms = from_ms
                replay = replace(replay, window=replace(replay.window, from_ms=from_ms))

    def _offsets_of(self, replay: Replay) -> OffsetRange:
        dependencies = self._dependencies
        return locate_window(
            dependencies.history, dependencies.store, dependencies.settings, replay
        )

    async def _offsets_to_retry(self, parent_id: str) -> OffsetRange:
        """What the parent failed to deliver or did not reach, in the partition that it read."""
        try:
            offsets = await self._lease.query(lambda store: store.offsets_to_retry(parent_id))
        except (ReplayNotFound, NothingToRetry) as error:
            raise ReplayRefused(str(error)) from error
        if offsets is None:
            # It failed before its window was looked up.
            return await asyncio.to_thread(self._window_offsets)
        return offsets

    async def _retried(self, parent_id: str, offsets: OffsetRange) -> RetriedOffsets | None:
        try:
            return await self._lease.query(lambda store: read_retried(store, parent_id, offsets))
        except (ReplayNotFound, TooManyRetries) as error:
            raise ReplayRefused(str(error)) from error

    def _delivered(self, offsets: OffsetRange, continues: Callable[[], bool]) -> DeliveredEvents:
        """The events that were delivered live; an event without known outcome is not delivered."""
        replay, dependencies = self._replay, self._dependencies
        deliveries = LiveDeliveries(
            dependencies.settings,
            dependencies.outcomes,
            replay.webhook_id,
            replay.window,
            dependencies.store.late_recorded_ms(
                offsets.partition, replay.window, origin=dependencies.settings.origin
            ),
        )
        found = deliveries.delivered(offsets, continues)
        if found.lost is not None:
            self._log.warning("outcomes-lost", reason=found.lost)
        if found.events.is_full:
            self._log.warning("outcomes-not-all-known")
        return found.events
