"""The second stage: delivery_log -> webhooks, and what became of each event -> delivery_outcomes.

A group that is new begins at the end: what was owed before there was a live path is for replays,
and is noted for them, since a mirror may have brought it late.
An event whose time is more than a day past when it is read is left to replays, too, and so is what
a mirror brought from another data centre, which delivers it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from app.domain.dedupe import RecentDigests, event_digest, lasting_digest
from app.domain.delivery import LiveOutcome
from app.domain.partition_progress import (
    InvalidCommitMetadata,
    PartitionCommit,
    PartitionProgress,
    resume,
)
from app.domain.tallies import SettledDelivery, TallyCounter
from app.live.commits import commit_regularly
from app.live.lane import Lane, Route
from app.live.metrics import LiveMetrics
from app.live.mirrored import HOLDER, MirroredRecords
from app.live.outcome_writer import OutcomeWriter
from app.live.parcel import Parcel, Share
from app.live.received_reports import ReceivedReports
from app.log.event import LoggedEvent, OwedEvent, place_name
from app.log.group_position import Bounds, Committed, Position
from app.log.group_reader import GroupReader
from app.log.outcomes import DeliveryOutcome, encode_outcome
from app.log.topics import DELIVERY_LOG

GROUP: Final = "rewind-delivery"

LATE_MS: Final = 86_400_000
"""An event this old is history: who wants it asks for a replay."""

RECENT_MAX: Final = 100_000
"""Delivered events that are remembered, to know copies by; each costs about 100 bytes."""

COMMIT_S: Final = 0.25
LAST_REQUESTS_S: Final = 8.0
"""How long requests under way may take when partitions are let go; supervisors wait ten."""

_LAST_OUTCOMES_S: Final = 2.0
_LOOK_S: Final = 0.01
_BUSY_S: Final = 0.02
"""A timer that comes this late says that the loop has more to do than it can."""

_SWEEP_S: Final = 60.0

_TEXT_CHARS_MAX: Final = 256
"""What an outcome tells of ids and types is cut to this; a stranger's may have any length."""


class Deliverer:
    """Brings events to the lanes of their webhooks, and keeps the books of what is settled."""

    def __init__(
        self,
        outcomes: OutcomeWriter,
        mirrored: MirroredRecords,
        tallies: TallyCounter,
        metrics: LiveMetrics,
        origin: str,
        reports: ReceivedReports | None = None,
    ) -> None:
        self._outcomes = outcomes
        self._mirrored = mirrored
        self._tallies = tallies
        self._metrics = metrics
        self._here = ("", origin)
        self._reports = reports
        self._shares: dict[int, Share] = {}
        self._lanes: dict[str, Lane] = {}
        self._waiting: dict[int, Parcel] = {}
        self._recent = RecentDigests(RECENT_MAX)
        self._reader: GroupReader | None = None
        self._route: Route | None = None

    @property
    def waiting(self) -> int:
        """Events that are in a lane."""
        return len(self._waiting)

    @property
    def unsettled(self) -> int:
        """Records that are read and not settled."""
        return sum(share.progress.unsettled_count for share in self._shares.values())

    async def run(self, reader: GroupReader, route: Route) -> None:
        """Keep the group's position until cancelled."""
        self._reader, self._route = reader, route
        sweep_s = time.monotonic() + _SWEEP_S
        async with asyncio.TaskGroup() as group:
            group.create_task(commit_regularly(reader, self._shares, self._reports, COMMIT_S))
            while True:
                due_s = time.monotonic() + COMMIT_S
                await asyncio.sleep(COMMIT_S)
                route.is_busy = time.monotonic() - due_s > _BUSY_S
                if time.monotonic() >= sweep_s:
                    sweep_s = time.monotonic() + _SWEEP_S
                    self._forget_lanes()

    async def begin(self, positions: Mapping[int, Position]) -> dict[int, int]:
        """Go on where the group stands, or begin at the end, once it is noted what lies before."""
        passed_over = {
            partition: bounds.high
            for partition, (committed, bounds) in positions.items()
            if committed is None and bounds.low < bounds.high
        }
        await self._mirrored.note_unread(passed_over)
        return {partition: self._begin(partition, *each) for partition, each in positions.items()}

    def _begin(self, partition: int, committed: Committed | None, bounds: Bounds) -> int:
        progress = _progress(committed, bounds)
        # A place of our own, so that a new group's first commit tells where it began.
        self._shares[partition] = Share(partition, progress, Committed(-1, ""))
        return max(progress.read_from, bounds.low)

    def take(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        """Bring each event to its lane, unless it was settled before."""
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        for partition, some in events.items():
            share = self._shares.get(partition)
            if share is None:
                continue
            for event in some:
                if share.progress.open(event.offset):
                    if self._reports is not None:
                        self._reports.count_event(event)
                    self._bring(share, event, now_s, now_ms)

    async def let_go(self, partitions: Sequence[int]) -> dict[int, Committed]:
        """Begin no more requests, and wait for those under way; how far the partitions are."""
        shares = {each: self._shares[each] for each in partitions if each in self._shares}
        for share in shares.values():
            self._withdraw(share)
        deadline_s = time.monotonic() + LAST_REQUESTS_S
        while any(share.posting for share in shares.values()):
            if time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(_LOOK_S)
        self.lose(partitions)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outcomes.flush(), _LAST_OUTCOMES_S)
        if self._reports is not None:
            await self._reports.report_before_release()
        return {each: share.reached() for each, share in shares.items()}

    def lose(self, partitions: Sequence[int]) -> None:
        """Forget the events of these partitions; others deliver them now."""
        for partition in partitions:
            share = self._shares.pop(partition, None)
            if share is None:
                continue
            self._withdraw(share)
            for lane in self._lanes.values():
                lane.drop(share)
            gone = [digest for digest, each in self._waiting.items() if each.share is share]
            for digest in gone:
                del self._waiting[digest]

    def settle(
        self, parcel: Parcel, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        """Write what became of a parcel and its copies; then they are settled."""
        if self._waiting.get(parcel.digest) is parcel:
            del self._waiting[parcel.digest]
        if outcome is LiveOutcome.DELIVERED:
            self._recent.add(parcel.digest)
        now_ms = time.time_ns() // 1_000_000
        settled = self._to_tally(parcel, outcome, now_ms)
        for share, event in ((parcel.share, parcel.event), *parcel.copies):
            event_id = parcel.event_id[:_TEXT_CHARS_MAX]
            became = DeliveryOutcome(
                partition=share.partition,
                offset=event.offset,
                event_id=event_id,
                outcome=outcome,
                attempts=parcel.attempts,
                status=status,
                reason=reason,
                time_ms=now_ms,
                digest=lasting_digest(parcel.event_id, event.value),
            )
            record = OwedEvent(
                parcel.webhook_id,
                event_id,
                event.event_type[:_TEXT_CHARS_MAX],
                max(0, event.timestamp_ms),
                encode_outcome(became),
            )
            written = partial(self._settled, share, event.offset, outcome, settled)
            self._outcomes.add(record, written)
            # Copies are one event.
            settled = None

    def _to_tally(
        self, parcel: Parcel, outcome: LiveOutcome, now_ms: int
    ) -> SettledDelivery | None:
        """What is to be counted, once it is written; None for what was counted before."""
        is_known = outcome is LiveOutcome.DELIVERED and not parcel.attempts
        assert self._route is not None
        if is_known or self._route.table.webhook(parcel.webhook_id) is None:
            return None
        return SettledDelivery(
            parcel.webhook_id, outcome, parcel.event.timestamp_ms, now_ms, parcel.took_ms
        )

    def crowd(self, share: Share, webhook_id: str) -> None:
        """Read no more of a partition for the sake of this webhook."""
        assert self._reader is not None
        if not share.crowded_by:
            self._reader.hold(share.partition)
        share.crowded_by.add(webhook_id)

    def clear(self, share: Share, webhook_id: str) -> None:
        """Read on, unless others have it held."""
        assert self._reader is not None
        share.crowded_by.discard(webhook_id)
        if not share.crowded_by and not share.is_gone:
            self._reader.release(share.partition)

    def clear_of_mirrored(self, share: Share) -> None:
        """Read on, if mirrored records had it held."""
        self.clear(share, HOLDER)

    def _settled(
        self, share: Share, offset: int, outcome: LiveOutcome, settled: SettledDelivery | None
    ) -> None:
        share.progress.settle(offset)
        self._metrics.count_settled(outcome)
        if settled is not None:
            self._tallies.count_delivery(settled)

    def _withdraw(self, share: Share) -> None:
        """Begin no more requests for its events."""
        share.is_gone = True
        for lane in self._lanes.values():
            lane.withdraw(share)

    def _bring(self, share: Share, event: LoggedEvent, now_s: float, now_ms: int) -> None:
        if event.origin not in self._here:
            self._mirrored.take(share, event, now_ms)
            if self._mirrored.is_full:
                self.crowd(share, HOLDER)
            return
        webhook_id = (event.key or b"").decode("utf-8", "replace")
        if len(webhook_id) > _TEXT_CHARS_MAX:
            # A stranger's record, owed to nobody; its outcome might not fit into one.
            share.progress.settle(event.offset)
            return
        event_id = event.event_id or place_name(DELIVERY_LOG, share.partition, event.offset)
        # No webhook's id has a space in it.
        digest = event_digest(f"{webhook_id} {event_id}", event.value)
        parcel = Parcel(share, webhook_id, event_id, digest, event, now_s)
        if digest in self._recent:
            self._metrics.duplicates.inc()
            self.settle(parcel, LiveOutcome.DELIVERED, None, None)
        elif first := self._waiting.get(digest):
            self._metrics.duplicates.inc()
            first.copies.append((share, event))
        elif event.timestamp_ms < now_ms - LATE_MS:
            reason = "its time was more than a day past when it was read"
            self.settle(parcel, LiveOutcome.SKIPPED, None, reason)
        else:
            self._waiting[digest] = parcel
            self._lane(webhook_id).offer(parcel)

    def _lane(self, webhook_id: str) -> Lane:
        lane = self._lanes.get(webhook_id)
        if lane is None:
            assert self._route is not None
            lane = self._lanes[webhook_id] = Lane(webhook_id, self._route)
        return lane

    def _forget_lanes(self) -> None:
        self._lanes = {
            webhook_id: lane for webhook_id, lane in self._lanes.items() if not lane.is_forgettable
        }


def _progress(committed: Committed | None, bounds: Bounds) -> PartitionProgress:
    if committed is None:
        return PartitionProgress(bounds.high)
    try:
        progress = resume(PartitionCommit(committed.position, committed.note))
    except InvalidCommitMetadata:
        # Somebody set the group's position by hand, with a note of theirs.
        progress = PartitionProgress(committed.position)
    progress.settle_deleted(bounds.low)
    return progress
