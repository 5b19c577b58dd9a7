"""Keeps the index of events up to date: reads the log, and stores which event ids are where.

The minute index of `delivery_log` is filled with it, by the records of the same reads.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from app.domain.event_index import (
    CHUNK_ENTRIES_MAX,
    EventIndexClaim,
    EventPartition,
    chunks_to_merge,
    count_entries,
    encode_entry,
    unindexed_ranges,
)
from app.domain.minute_index import MinuteIndexUpdate, TimedOffset, next_update
from app.log.errors import LogError
from app.log.event_records import EventRange, EventRecords
from app.log.inspection.deadline import Deadline
from app.process import BackgroundTask, on_own_thread
from app.store import Store, StoreError
from app.store.event_index import EventIndex

_log: Final = logging.getLogger("rewind.api")

INTERVAL_S: Final = 10.0
"""How often a quiet log is inspected."""

UNINDEXED_MAX: Final = 5_000
"""A busy log is inspected as often as it gets about so many records. A look-up reads them."""

UNINDEXED_MIN: Final = 1_000
"""Fewer new records are left to look-ups, so that blocks are not small."""

REST: Final = 9
"""Indexing pauses this many times as long as it took: it takes a tenth of a processor at most."""

CLAIM_S: Final = 60.0

_INTERVAL_S_MIN: Final = 1.0
_RETRY_S: Final = 60.0
_READ_S: Final = 10.0
_RECORDS_PER_READ: Final = 4_000
_BYTES_PER_READ: Final = 16 * 2**20
_KEPT_S: Final = 86_400
"""How much longer than the log's retention entries are kept: whole segments are deleted later."""


class Indexed(NamedTuple):
    """The result of a step: `entries` were added, and `unindexed` records are left."""

    entries: int
    unindexed: int


class EventIndexer(BackgroundTask):
    """Adds new records of the log to the index of events during its `async with`.

    Every API process tries; the one that claims the index does the work. Errors are logged, and the
    next step continues. A process that dies loses its claim after `CLAIM_S`.
    """

    def __init__(
        self,
        store: Store,
        index: EventIndex,
        records: EventRecords,
        retention_ms: int,
        *,
        interval_s: float = INTERVAL_S,
        unindexed_min: int = UNINDEXED_MIN,
    ) -> None:
        super().__init__(_log, "event-index-stopped")
        self._store = store
        self._index = index
        self._records = records
        self._kept_ms = retention_ms + 1_000 * _KEPT_S
        self._interval_s = interval_s
        self._unindexed_min = unindexed_min

    async def _run(self) -> None:
        # The log and the database may have just started.
        await asyncio.sleep(self._interval_s)
        last_s = time.monotonic()
        while True:
            began_s = time.monotonic()
            pause_s = self._interval_s
            try:
                step = await on_own_thread(self.index_new)
            except (LogError, StoreError) as error:
                _log.warning("event-index-failed", extra={"reason": str(error)})
                pause_s = _RETRY_S
            else:
                now_s = time.monotonic()
                rate = (step.entries + step.unindexed) / (now_s - last_s)
                if step.entries and step.unindexed >= self._unindexed_min:
                    pause_s = 0.0
                elif rate > 0:
                    pause_s = min(pause_s, max(_INTERVAL_S_MIN, UNINDEXED_MAX / rate))
                pause_s = max(pause_s, REST * (now_s - began_s))
            last_s = began_s
            await asyncio.sleep(pause_s)

    def index_new(self) -> Indexed:
        """Add a chunk of new records, merge chunks, and delete expired ones. Blocks.

        Raises:
            LogUnavailable: the log does not answer.
            StoreError: the database does not answer, or has another schema.
        """
        # A missing table would raise an error that is no StoreError.
        self._store.check()
        bounds = self._records.bounds(Deadline(_READ_S))
        unindexed = _count(unindexed_ranges(self._index.positions(), bounds))
        if unindexed < self._unindexed_min:
            return Indexed(0, unindexed)
        claim = self._index.claim(CLAIM_S)
        if claim is None:
            return Indexed(0, unindexed)
        try:
            added = self._add_chunk(claim)
            if added:
                self._tidy(claim)
        finally:
            self._index.release(claim)
        return Indexed(added, max(0, unindexed - added))

    def _add_chunk(self, claim: EventIndexClaim) -> int:
        """Add the next records; returns the number of entries, 0 if the claim was lost."""
        deadline = Deadline(_READ_S)
        # Read after the claim: a position above an end would mean a recreated topic.
        bounds = self._records.bounds(deadline)
        positions = dict(claim.positions)
        minutes = self._next_minutes(claim, bounds, deadline)
        entries = bytearray()
        while count_entries(entries) < CHUNK_ENTRIES_MAX and not deadline.is_over:
            ranges = unindexed_ranges(positions, bounds)
            if not ranges:
                break
            left = min(_RECORDS_PER_READ, CHUNK_ENTRIES_MAX - count_entries(entries))
            share = max(1, left // len(ranges))
            wanted = {
                partition: (start, min(end, start + share))
                for partition, (start, end) in ranges.items()
            }
            before = dict(positions)
            for partition, found in self._records.read(wanted, deadline, _BYTES_PER_READ).items():
                for each in found.records:
                    entries += encode_entry(each.event_id, each.place)
                positions[partition] = found.position
                if partition.is_delivery_log:
                    _add_minutes(minutes[partition.number], found)
            if positions == before:
                break
        if not self._index.add_chunk(claim, entries, positions, CLAIM_S, minutes):
            return 0
        return count_entries(entries)

    def _next_minutes(
        self,
        claim: EventIndexClaim,
        bounds: Mapping[EventPartition, tuple[int, int]],
        deadline: Deadline,
    ) -> dict[int, MinuteIndexUpdate]:
        """The updates of the minute index, by partition that has new records."""
        stored = self._index.indexed_ranges()
        starts = {
            partition.number: start
            for partition, (start, _) in unindexed_ranges(claim.positions, bounds).items()
            if partition.is_delivery_log
        }
        newest_ms = {
            number: each.newest.time_ms
            for number, each in stored.items()
            if number in starts and each.newest is not None
        }
        found = self._records.first_deliveries_since(newest_ms, deadline)
        return {
            number: next_update(
                stored.get(number),
                found.get(number),
                claim.positions.get(EventPartition(True, number)),
                start=start,
                low=bounds[EventPartition(True, number)][0],
            )
            for number, start in starts.items()
        }

    def _tidy(self, claim: EventIndexClaim) -> None:
        while merged := chunks_to_merge(self._index.chunks()):
            if not self._index.merge(claim, merged, CLAIM_S):
                return
        self._index.delete_expired(claim, self._kept_ms, CLAIM_S)


def _add_minutes(update: MinuteIndexUpdate, found: EventRange) -> None:
    if found.has_unreadable:
        # Their times are unknown.
        update.restart(found.position)
        return
    times = ((each.place.offset, each.record.timestamp_ms) for each in found.records)
    update.add(
        (TimedOffset(offset, time_ms) for offset, time_ms in times if time_ms is not None),
        found.position,
    )


def _count(ranges: Mapping[EventPartition, tuple[int, int]]) -> int:
    return sum(end - start for start, end in ranges.values())
