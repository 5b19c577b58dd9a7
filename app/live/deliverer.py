"""The second stage: delivery_log -> webhooks, and outcomes -> delivery_outcomes.

A new consumer group starts at the end of the log. Earlier events are left to replays, and their
positions are stored as late events, because a mirror may have written them late. Events that are
more than a day old when they are read are left to replays, and so are mirrored events, which
their own data centre delivers.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from app.domain.dedupe import SeenHashes, event_digest, lasting_digest
from app.domain.delivery import LiveOutcome, Rejected, Unreachable
from app.domain.handovers import LIVE_AGE_MS_MAX, LiveHandover
from app.domain.partition_progress import (
    InvalidCommitMetadata,
    PartitionCommit,
    PartitionProgress,
    resume,
)
from app.domain.scheduled_retries import SCHEDULED_REASON
from app.domain.tallies import SettledDelivery, TallyCounter
from app.live.commits import commit_regularly
from app.live.delivery import DeliveryPartition, LiveDelivery
from app.live.handovers import Handovers
from app.live.metrics import LiveMetrics
from app.live.mirrored import PAUSED_FOR_MIRRORED, MirroredRecords
from app.live.outcome_writer import OutcomeWriter
from app.live.queue_context import QueueContext
from app.live.received_reports import ReceivedReports
from app.live.webhook_queue import WebhookQueue
from app.log.attempts import FailedAttempt, encode_attempt
from app.log.event import LoggedEvent, NewEvent, place_name
from app.log.group_position import Committed, GroupPosition
from app.log.group_reader import GroupReader
from app.log.outcomes import DeliveryOutcome, OutcomeRetries, encode_outcome
from app.log.topics import DELIVERERS, DELIVERY_LOG
from logbroker.client.log_bounds import Bounds

GROUP: Final = DELIVERERS

RECENT_MAX: Final = 200_000
"""Delivered events remembered to detect copies, in 4 MB: at least the last half of them."""

COMMIT_S: Final = 0.25
LAST_REQUESTS_S: Final = 8.0
"""How long requests in flight may take when partitions are revoked; supervisors wait ten."""

_LAST_OUTCOMES_S: Final = 2.0
_POLL_S: Final = 0.01
_BUSY_S: Final = 0.02
"""A timer this late shows that the event loop is overloaded."""

_SWEEP_S: Final = 60.0

_TEXT_CHARS_MAX: Final = 256
"""Ids and types in outcomes are cut to this length; in the log they may have any."""


class Deliverer:
    """Adds events to the queues of their webhooks and tracks which are settled."""

    def __init__(
        self,
        outcomes: OutcomeWriter,
        mirrored: MirroredRecords,
        tallies: TallyCounter,
        metrics: LiveMetrics,
        origin: str,
        handovers: Handovers,
        reports: ReceivedReports | None = None,
    ) -> None:
        self._handovers = handovers
        self._outcomes = outcomes
        self._mirrored = mirrored
        self._tallies = tallies
        self._metrics = metrics
        self._own_origins = ("", origin)
        self._reports = reports
        self._partitions: dict[int, DeliveryPartition] = {}
        self._queues: dict[str, WebhookQueue] = {}
        self._waiting: dict[int, LiveDelivery] = {}
        self._recent = SeenHashes(RECENT_MAX)
        self._last_outcomes: dict[str, int] = {}
        """By handover, how many outcomes must be written before it is acknowledged."""
        self._changed = asyncio.Event()
        """Set when there may be something to commit."""
        self._reader: GroupReader | None = None
        self._context: QueueContext | None = None

    @property
    def waiting(self) -> int:
        """The number of deliveries in queues."""
        return len(self._waiting)

    @property
    def unsettled(self) -> int:
        """The number of records that are read and not settled."""
        return sum(each.progress.unsettled_count for each in self._partitions.values())

    async def run(self, reader: GroupReader, context: QueueContext) -> None:
        """Commit positions until cancelled."""
        self._reader, self._context = reader, context
        sweep_s = time.monotonic() + _SWEEP_S
        async with asyncio.TaskGroup() as group:
            group.create_task(
                commit_regularly(reader, self._partitions, self._reports, COMMIT_S, self._changed)
            )
            while True:
                if not self._queues:
                    await self._changed.wait()
                due_s = time.monotonic() + COMMIT_S
                await asyncio.sleep(COMMIT_S)
                context.is_busy = time.monotonic() - due_s > _BUSY_S
                if time.monotonic() >= sweep_s:
                    sweep_s = time.monotonic() + _SWEEP_S
                    self._forget_queues()

    async def start_partitions(self, positions: Mapping[int, GroupPosition]) -> dict[int, int]:
        """The offsets to read from: the committed positions, or the end for a new group."""
        skipped = {
            partition: bounds.high
            for partition, (committed, bounds) in positions.items()
            if committed is None and bounds.low < bounds.high
        }
        await self._mirrored.store_unread(skipped)
        # The process that had the partitions before may have acknowledged a handover just now.
        await self._handovers.try_to_refresh()
        assert self._context is not None
        recoveries = await self._context.recoveries.read()
        scheduled = await self._context.retries.read(tuple(positions))
        starts = {}
        for number, (committed, bounds) in positions.items():
            progress = _progress(committed, bounds)
            starts[number] = start = max(progress.read_from, bounds.low)
            self._partitions[number] = DeliveryPartition(
                number,
                progress,
                # No real position, so that the first commit of a new group stores where it started.
                Committed(-1, ""),
                recoveries=recoveries,
                scheduled=frozenset(
                    offset for where, offset in scheduled if where == number and offset >= start
                ),
            )
        self._changed.set()
        return starts

    def process_events(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        """Add each event to the queue of its webhook, unless it was settled before."""
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        self._changed.set()
        for number, some in events.items():
            partition = self._partitions.get(number)
            if partition is None:
                continue
            for event in some:
                if partition.progress.open(event.offset):
                    if self._reports is not None:
                        self._reports.count_event(event)
                    self._add(partition, event, now_s, now_ms)

    def skip_to(self, partition: int, offset: int) -> None:
        """Treat the unread offsets below `offset` as settled: their batches cannot be read."""
        if assigned := self._partitions.get(partition):
            assigned.progress.skip_to(offset)
            self._changed.set()

    async def release_partitions(self, partitions: Sequence[int]) -> dict[int, Committed]:
        """Start no more requests, and wait for those in flight; the positions to commit."""
        revoked = {each: self._partitions[each] for each in partitions if each in self._partitions}
        for partition in revoked.values():
            self._withdraw(partition)
        deadline_s = time.monotonic() + LAST_REQUESTS_S
        while any(partition.in_flight for partition in revoked.values()):
            if time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(_POLL_S)
        self.drop_partitions(partitions)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outcomes.flush(), _LAST_OUTCOMES_S)
        if self._reports is not None:
            await self._reports.report_before_release()
        return {number: partition.position() for number, partition in revoked.items()}

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        """Drop the events of these partitions; another process delivers them."""
        for number in partitions:
            partition = self._partitions.pop(number, None)
            if partition is None:
                continue
            self._withdraw(partition)
            for queue in self._queues.values():
                queue.remove_partition(partition)
            lost = [key for key, each in self._waiting.items() if each.partition is partition]
            for digest in lost:
                del self._waiting[digest]

    def hand_over(self, handover: LiveHandover) -> bool:
        """Send no more events of a handover; whether their outcomes are in the log.

        False if another process has the partition.
        """
        partition = self._partitions.get(handover.offsets.partition)
        if partition is None or partition.is_revoked:
            return False
        queue = self._queues.get(handover.webhook_id)
        if queue is not None and not queue.hand_over(handover):
            return False
        last = self._last_outcomes.setdefault(handover.replay_id, self._outcomes.added_count)
        if self._outcomes.written_count < last:
            return False
        del self._last_outcomes[handover.replay_id]
        return True

    def cancel_senders(self) -> None:
        """Cancel all requests in flight."""
        for queue in self._queues.values():
            queue.cancel_senders()

    def record_outcome(
        self, delivery: LiveDelivery, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        """Write the outcome of a delivery and its copies; once written, they are settled."""
        if self._waiting.get(delivery.digest) is delivery:
            del self._waiting[delivery.digest]
        if outcome is LiveOutcome.DELIVERED:
            self._recent.add(delivery.digest)
        now_ms = time.time_ns() // 1_000_000
        settled = self._to_count(delivery, outcome, now_ms)
        for partition, event in ((delivery.partition, delivery.event), *delivery.copies):
            event_id = delivery.event_id[:_TEXT_CHARS_MAX]
            result = DeliveryOutcome(
                partition=partition.partition,
                offset=event.offset,
                event_id=event_id,
                outcome=outcome,
                attempts=delivery.attempts,
                status=status,
                reason=reason,
                time_ms=now_ms,
                digest=lasting_digest(delivery.event_id, event.value),
                duration_ms=delivery.took_ms,
                retries=OutcomeRetries.PENDING if delivery.is_scheduled else None,
            )
            record = _record(delivery, event, encode_outcome(result))
            if delivery.has_failed:
                self._outcomes.add_attempt(record)
            written = partial(self._settle, partition, event.offset, outcome, settled)
            self._outcomes.add(record, written)
            # Copies count as one event.
            settled = None

    def record_failed_attempt(
        self, delivery: LiveDelivery, failure: Rejected | Unreachable, next_ms: int | None
    ) -> None:
        """Write an attempt that failed just now; a retry is due at `next_ms`, if there is one."""
        delivery.has_failed = True
        attempt = FailedAttempt(
            partition=delivery.partition.partition,
            offset=delivery.event.offset,
            event_id=delivery.event_id[:_TEXT_CHARS_MAX],
            number=delivery.attempts,
            status=failure.status if isinstance(failure, Rejected) else None,
            reason=failure.reason,
            response=failure.response if isinstance(failure, Rejected) else None,
            duration_ms=delivery.took_ms or 0.0,
            time_ms=time.time_ns() // 1_000_000,
            next_ms=next_ms,
        )
        self._outcomes.add_attempt(_record(delivery, delivery.event, encode_attempt(attempt)))

    def _to_count(
        self, delivery: LiveDelivery, outcome: LiveOutcome, now_ms: int
    ) -> SettledDelivery | None:
        """What to count in the statistics.

        None if it was counted before, will be when its scheduled retries end, or has no webhook.
        """
        is_duplicate = outcome is LiveOutcome.DELIVERED and not delivery.attempts
        assert self._context is not None
        is_counted_elsewhere = is_duplicate or delivery.is_scheduled
        if is_counted_elsewhere or self._context.table.webhook(delivery.webhook_id) is None:
            return None
        if delivery.handover is not None:
            # The replay, which brings the event, counts for what is missed until its creation.
            now_ms = delivery.handover.requested_ms - 1
        return SettledDelivery(
            delivery.webhook_id, outcome, delivery.event.timestamp_ms, now_ms, delivery.took_ms
        )

    def pause_partition(self, partition: DeliveryPartition, webhook_id: str) -> None:
        """Stop reading a partition for the sake of this webhook."""
        assert self._reader is not None
        if not partition.paused_for:
            self._reader.hold(partition.partition)
        partition.paused_for.add(webhook_id)

    def resume_partition(self, partition: DeliveryPartition, webhook_id: str) -> None:
        """Read a partition again, unless it is paused for others."""
        assert self._reader is not None
        partition.paused_for.discard(webhook_id)
        if not partition.paused_for and not partition.is_revoked:
            self._reader.release(partition.partition)

    def resume_after_mirrored(self, partition: DeliveryPartition) -> None:
        """Read a partition again if it was paused for mirrored records."""
        self.resume_partition(partition, PAUSED_FOR_MIRRORED)

    def _settle(
        self,
        partition: DeliveryPartition,
        offset: int,
        outcome: LiveOutcome,
        settled: SettledDelivery | None,
    ) -> None:
        partition.progress.settle(offset)
        self._metrics.count_settled(outcome)
        if settled is not None:
            self._tallies.count_delivery(settled)

    def _withdraw(self, partition: DeliveryPartition) -> None:
        """Start no more requests for the events of a partition."""
        partition.is_revoked = True
        for queue in self._queues.values():
            queue.withdraw(partition)

    def _add(
        self, partition: DeliveryPartition, event: LoggedEvent, now_s: float, now_ms: int
    ) -> None:
        if event.origin not in self._own_origins:
            self._mirrored.add(partition, event, now_ms)
            if self._mirrored.is_full:
                self.pause_partition(partition, PAUSED_FOR_MIRRORED)
            return
        webhook_id = (event.key or b"").decode("utf-8", "replace")
        if len(webhook_id) > _TEXT_CHARS_MAX:
            # No webhook has such an id, and an outcome with it might exceed the record size.
            partition.progress.settle(event.offset)
            return
        event_id = event.event_id or place_name(DELIVERY_LOG, partition.partition, event.offset)
        # No webhook id contains a space.
        digest = event_digest(f"{webhook_id} {event_id}", event.value)
        size_bytes = len(event.value)
        delivery = LiveDelivery(partition, webhook_id, event_id, digest, event, now_s, size_bytes)
        if digest in self._recent:
            self._metrics.duplicates.inc()
            self.record_outcome(delivery, LiveOutcome.DELIVERED, None, None)
        elif first := self._waiting.get(digest):
            self._metrics.duplicates.inc()
            first.copies.append((partition, event))
        elif handover := self._handovers.of(delivery):
            delivery.handover = handover
            self.record_outcome(delivery, LiveOutcome.SKIPPED, None, handover.reason)
        elif event.offset in partition.scheduled:
            delivery.is_scheduled = True
            self.record_outcome(delivery, LiveOutcome.FAILED, None, SCHEDULED_REASON)
        elif event.timestamp_ms < now_ms - LIVE_AGE_MS_MAX:
            reason = "the event was more than a day old when it was read"
            self.record_outcome(delivery, LiveOutcome.SKIPPED, None, reason)
        else:
            self._waiting[digest] = delivery
            self._queue_of(webhook_id).add(delivery)

    def _queue_of(self, webhook_id: str) -> WebhookQueue:
        queue = self._queues.get(webhook_id)
        if queue is None:
            assert self._context is not None
            queue = self._queues[webhook_id] = WebhookQueue(webhook_id, self._context)
        return queue

    def _forget_queues(self) -> None:
        self._queues = {key: each for key, each in self._queues.items() if not each.is_forgettable}


def _record(delivery: LiveDelivery, event: LoggedEvent, value: bytes) -> NewEvent:
    """The record of an outcome or of an attempt."""
    return NewEvent(
        delivery.webhook_id,
        delivery.event_id[:_TEXT_CHARS_MAX],
        event.event_type[:_TEXT_CHARS_MAX],
        max(0, event.timestamp_ms),
        value,
    )


def _progress(committed: Committed | None, bounds: Bounds) -> PartitionProgress:
    if committed is None:
        return PartitionProgress(bounds.high)
    try:
        progress = resume(PartitionCommit(committed.position, committed.note))
    except InvalidCommitMetadata:
        # The position was committed by another program.
        progress = PartitionProgress(committed.position)
    progress.settle_deleted(bounds.low)
    return progress
