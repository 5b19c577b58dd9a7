"""Delivers one range of the log: source -> queue -> sender tasks -> ledger -> checkpoints."""

import asyncio
import time
from dataclasses import asdict
from functools import partial
from typing import Final

from app.delivery.batch import BatchBuilder
from app.domain.concurrency import USEFUL_MIN, ConcurrencyLimit
from app.domain.dedupe import SeenHashes
from app.domain.hours import HOUR_MS
from app.domain.model import Claim, OffsetRange
from app.domain.options import ReplayReason, Source
from app.domain.rates import RateLimiter
from app.domain.receiver_failure import ReceiverFailure
from app.domain.recovery import may_postpone
from app.domain.retry import RetryPolicy
from app.domain.turns import ReplayActivity
from app.log.errors import LogError
from app.log.reader import ReplayReader
from app.log.topics import DELIVERY_ARCHIVE, DELIVERY_LOG
from app.replay_workers.checkpoints import CheckpointRecorder
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.endpoint import ReplayEndpoint
from app.replay_workers.errors import (
    LeaseLost,
    ReceiverGone,
    ReplayPostponed,
    ReplayRefused,
)
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.queue import BATCHES_PER_SENDER, EVENTS_MAX, ReplayQueue
from app.replay_workers.selection import Selection
from app.replay_workers.sender import ReplaySender
from app.replay_workers.source import ReplaySource
from app.store import Store, WebhookNotFound

LAST_REQUESTS_S: Final = 8.0
"""How long requests in flight may take after a stop; supervisors wait ten seconds."""

WEBHOOK_AGE_S: Final = 3.0
"""How often a replay reads its webhook again: secrets, URL and status may change."""

FAILURE_REPORT_S: Final = 1.0
"""How often the failures of a receiver are stored, if they have changed."""

RECORDS_REMEMBERED: Final = 2_000_000
"""How far below its checkpoint a resumed replay starts to read, to detect copies of delivered
events. It takes seconds; from the start of the range it could take as long as the replay so far."""

_TOPICS: Final = {Source.LOG: DELIVERY_LOG, Source.ARCHIVE: DELIVERY_ARCHIVE}


class ReplayDelivery:
    """The delivery of `offsets`, from the checkpoint of `claim` on."""

    def __init__(
        self,
        claim: Claim,
        offsets: OffsetRange,
        selection: Selection,
        endpoint: ReplayEndpoint,
        lease: LeaseKeeper,
        dependencies: WorkerDependencies,
        activity: ReplayActivity,
    ) -> None:
        replay = claim.replay
        self._claim = claim
        self._options = replay.options
        self._offsets = offsets
        self._selection = selection
        self._endpoint = endpoint
        self._lease = lease
        self._dependencies = dependencies
        self._activity = activity
        self.resume_at = offsets.start if replay.checkpoint is None else replay.checkpoint
        self._checkpoints = CheckpointRecorder(claim, self.resume_at, lease, dependencies)
        self._ledger = self._checkpoints.ledger
        self._sender = self._new_sender()
        self._queue: ReplayQueue | None = None
        self._reading: asyncio.Task[None] | None = None
        self._reason: Exception | None = None

    @property
    def counts_by_name(self) -> dict[str, int]:
        """The counts of the last stored checkpoint."""
        return asdict(self._checkpoints.recorded.counts)

    @property
    def is_complete(self) -> bool:
        """Whether every record of the range is settled."""
        return self._ledger.checkpoint().offset >= self._offsets.end

    @property
    def remaining(self) -> int:
        """The number of offsets above the last stored checkpoint."""
        return max(0, self._offsets.end - self._checkpoints.recorded.offset)

    @property
    def is_retrying(self) -> bool:
        """Whether it has events in retry, which hold the checkpoint back."""
        return self._sender.is_retrying

    async def run(self) -> None:
        """Deliver until all is settled, or until stopped.

        Requests in flight are answered before this returns or raises.

        Raises:
            WorkerStopping, TurnEnded, LeaseLost: as passed to `stop`.
            ReplayRefused: the webhook or its receiver makes it impossible to continue.
            ReplayPostponed: the webhook may not be sent to now, or the receiver fails again.
            HistoryLost: records of the range were deleted from the log.
            LogUnavailable: the log does not respond.
        """
        if self.is_complete:
            return
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(self._watch_webhook())]
            self._queue = ReplayQueue(
                self._ledger,
                self._sender.deliver,
                in_flight_max=self._sender.concurrency.limit,
                batch_events_max=self._batch_events_max,
                start_task=group.create_task,
                request_checkpoint=self._checkpoints.request,
            )
            group.create_task(self._record_regularly(self._queue))
            watches.append(group.create_task(self._report_failures(self._queue)))
            self._reading = group.create_task(self._read(self._queue))
            await self._queue.deliveries.wait_until_done()
            self._queue.settle_begun()
            self._checkpoints.finish()
            for watch in watches:
                watch.cancel()
        reason = self._reason
        if isinstance(reason, ReplayRefused) or (reason is not None and not self.is_complete):
            raise reason

    def stop(self, reason: Exception) -> None:
        """Start no more attempts; `run` raises `reason` once requests in flight are answered."""
        if self._queue is None or self._reading is None or self._reason is not None:
            return
        self._reason = reason
        self._reading.cancel()
        self._sender.stop(withholds=isinstance(reason, ReceiverGone))
        deliveries = self._queue.deliveries
        deliveries.stop(self._sender.in_request)
        asyncio.get_running_loop().call_later(LAST_REQUESTS_S, deliveries.stop)

    async def record(self, *, even_if_unchanged: bool = False) -> None:
        """Store the checkpoint, if it has changed.

        Raises:
            LeaseLost: another worker may have the replay.
        """
        await self._checkpoints.record(even_if_unchanged=even_if_unchanged)

    async def _record_regularly(self, queue: ReplayQueue) -> None:
        try:
            await self._checkpoints.run(queue.continue_reading)
        except LeaseLost as lost:
            self.stop(lost)

    async def _watch_webhook(self) -> None:
        webhook_id, endpoint = self._claim.webhook.id, self._endpoint
        try:
            while True:
                await asyncio.sleep(WEBHOOK_AGE_S)
                endpoint.webhook = await self._lease.query(lambda store: store.webhook(webhook_id))
                endpoint.check()
        except WebhookNotFound:
            # Its replays are cancelled with it, as the next heartbeat would show.
            self.stop(LeaseLost())
        except (ReplayRefused, ReplayPostponed) as reason:
            self.stop(reason)

    async def _report_failures(self, queue: ReplayQueue) -> None:
        """Store what the owner sees while the receiver fails."""
        stored: ReceiverFailure | None = None
        try:
            while True:
                await asyncio.sleep(FAILURE_REPORT_S)
                failure = self._sender.receiver_failure(queue.waiting_events)
                if failure != stored:
                    await self._lease.write(partial(Store.store_receiver_failure, failure=failure))
                    stored = failure
        except LeaseLost as lost:
            self.stop(lost)

    async def _read(self, queue: ReplayQueue) -> None:
        try:
            await self._new_source().run(queue)
        except LogError as reason:
            self.stop(reason)

    @property
    def _batch_events_max(self) -> int:
        # At five events a second, a request holds no more than a second's worth.
        return min(self._options.batch_size, self._options.max_events_per_second)

    @property
    def _in_flight_max(self) -> int:
        """The most requests in flight without a choice of the owner: see `EVENTS_MAX`."""
        within_events_max = EVENTS_MAX // (BATCHES_PER_SENDER * self._batch_events_max)
        return min(self._dependencies.settings.max_in_flight, max(USEFUL_MIN, within_events_max))

    def _new_sender(self) -> ReplaySender:
        settings = self._dependencies.settings
        return ReplaySender(
            replay_id=self._claim.lease.replay_id,
            endpoint=self._endpoint,
            attempts=self._dependencies.attempts,
            policy=RetryPolicy(
                settings.retry_attempts_max,
                settings.retry_base_s,
                settings.retry_cap_s,
                self._retry_schedule_s,
            ),
            lease=self._lease,
            checkpoint_age=self._checkpoints.age,
            rate_limiter=RateLimiter(self._options.max_events_per_second, time.monotonic()),
            refused=self.stop,
            activity=self._activity,
            concurrency=ConcurrencyLimit(
                self._options.max_in_flight or self._in_flight_max,
                self._dependencies.attempts.is_crowded,
                request_events=self._batch_events_max,
            ),
            may_postpone=self._may_postpone,
            is_ordered=self._is_ordered,
            is_batched=self._options.batch_size > 1,
            events_max=self._batch_events_max,
        )

    @property
    def _retry_schedule_s(self) -> tuple[float, ...]:
        """The webhook's own pauses, as far as live delivery uses them.

        A recovery waits for the receiver as the operator chose.
        """
        webhook = self._endpoint.webhook
        is_recovery = self._claim.replay.reason is ReplayReason.RECOVERY
        if is_recovery or webhook.options is None or not webhook.options.retry_schedule_s:
            return ()
        return self._dependencies.settings.retry_schedule.of_webhook(webhook).live_s

    @property
    def _is_ordered(self) -> bool:
        is_recovery = self._claim.replay.reason is ReplayReason.RECOVERY
        return is_recovery and self._endpoint.webhook.is_ordered

    def _may_postpone(self, *, is_alone: bool) -> bool:
        """Whether it waits for a failing receiver: only a recovery does.

        Raises:
            ReceiverGone: in strict order no event is given up for an outage.
        """
        replay = self._claim.replay
        if replay.reason is not ReplayReason.RECOVERY:
            return False
        age_ms = time.time_ns() // 1_000_000 - replay.created_ms
        is_alone = is_alone and not self._is_ordered
        waits = may_postpone(age_ms, replay.lease_epoch, is_alone=is_alone)
        if not waits and self._is_ordered:
            raise ReceiverGone(
                f"stopped: the receiver failed during the recovery {replay.id}, which was created "
                f"{age_ms // HOUR_MS} hours ago"
            )
        return waits

    def _new_source(self) -> ReplaySource:
        settings, replay, offsets = self._dependencies.settings, self._claim.replay, self._offsets
        start = max(offsets.start, self.resume_at - RECORDS_REMEMBERED)
        reader = ReplayReader(
            self._dependencies.clients,
            _TOPICS[replay.source],
            OffsetRange(offsets.partition, start, offsets.end),
            key=replay.webhook_id.encode(),
            window=replay.window,
            on_unreadable=self._dependencies.metrics.log.record_unreadable,
        )
        return ReplaySource(
            reader,
            self._selection,
            SeenHashes(min(settings.dedupe_entries, offsets.end - start)),
            BatchBuilder(self._batch_events_max),
            resume_at=self.resume_at,
            activity=self._activity,
        )
