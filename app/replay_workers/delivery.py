"""Delivers one range of the log: intake -> backlog -> couriers -> ledger -> checkpoints."""

import asyncio
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Final

from app.domain.checkpointing import Checkpoint, DeliveryLedger
from app.domain.dedupe import SeenHashes
from app.domain.endpoint_health import ProbedEndpointHealth
from app.domain.model import Claim, OffsetRange, Replay
from app.domain.options import Source
from app.domain.rates import RateLimiter
from app.domain.retry import RetryPolicy
from app.domain.samples import SamplePace
from app.log.errors import LogError
from app.log.reader import ReplayReader
from app.log.replay_outcomes import ReplayOutcome
from app.log.topics import DELIVERY_ARCHIVE, DELIVERY_LOG
from app.replay_workers.backlog import Backlog
from app.replay_workers.courier import Courier, Route
from app.replay_workers.equipment import Equipment
from app.replay_workers.errors import LeaseLost, ReplayPutOff, ReplayRefused
from app.replay_workers.intake import Intake
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.packing import Packer
from app.replay_workers.selection import Selection
from app.replay_workers.target import Target
from app.store import WebhookNotFound

LAST_REQUESTS_S: Final = 8.0
"""How long requests under way may take once no more are to be sent; supervisors wait ten."""

WEBHOOK_AGE_S: Final = 3.0
"""How long a replay goes on with a secret, a URL or a status of before."""

RECORDS_REMEMBERED: Final = 2_000_000
"""How far below its checkpoint a replay that goes on begins to read, so that it knows copies of
what was delivered before. It takes seconds; from the start, it could take as long as all before."""

_TOPICS: Final = {Source.LOG: DELIVERY_LOG, Source.ARCHIVE: DELIVERY_ARCHIVE}


class Delivery:
    """The delivery of `offsets`, from the checkpoint of `claim` on."""

    def __init__(
        self,
        claim: Claim,
        offsets: OffsetRange,
        selection: Selection,
        target: Target,
        lease: LeaseKeeper,
        equipment: Equipment,
    ) -> None:
        checkpoint = claim.replay.checkpoint
        self._claim = claim
        self._options = claim.replay.options
        self._offsets = offsets
        self._selection = selection
        self._target = target
        self._lease = lease
        self._equipment = equipment
        self.resume_at = offsets.start if checkpoint is None else checkpoint
        self._ledger = DeliveryLedger(
            self.resume_at, claim.replay.counts, claim.replay.status_counts
        )
        self._recorded = self._ledger.checkpoint()
        self._samples = SamplePace(_age_ms(claim.replay), _monotonic_ms())
        self._couriers: list[Courier] = []
        self._intake: asyncio.Task[None] | None = None
        self._reason: Exception | None = None

    @property
    def counts_by_name(self) -> dict[str, int]:
        """What became of the records below the last checkpoint on record."""
        return asdict(self._recorded.counts)

    @property
    def is_complete(self) -> bool:
        """Whether every record of the range is settled."""
        return self._ledger.checkpoint().offset >= self._offsets.end

    @property
    def remaining(self) -> int:
        """How many records lie above the last checkpoint on record."""
        return max(0, self._offsets.end - self._recorded.offset)

    async def run(self) -> None:
        """Deliver until all is settled, or until stopped.

        Whatever stops it, requests under way are answered before this returns or raises.

        Raises:
            WorkerStopping, LeaseLost: what `stop` was given.
            ReplayRefused: the webhook or its receiver makes it pointless to go on.
            ReplayPutOff: the webhook takes nothing for now.
            HistoryLost: records of the range are gone from the log.
            LogUnavailable: the log does not answer.
        """
        if self.is_complete:
            return
        is_carried = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record_until(is_carried))
            watch = group.create_task(self._watch_webhook())
            backlog = self._backlog()
            route = self._route(backlog)
            self._couriers = [Courier(route) for _ in range(self._in_flight)]
            self._intake = group.create_task(self._read(backlog))
            await asyncio.wait([group.create_task(self._carry(each)) for each in self._couriers])
            is_carried.set()
            watch.cancel()
        reason = self._reason
        if isinstance(reason, ReplayRefused) or (reason is not None and not self.is_complete):
            raise reason

    def stop(self, reason: Exception) -> None:
        """Take no more attempts; `run` raises once the requests under way are answered."""
        if self._intake is None or self._reason is not None:
            return
        self._reason = reason
        self._intake.cancel()
        for courier in self._couriers:
            courier.stop()
        asyncio.get_running_loop().call_later(LAST_REQUESTS_S, self._cut_off)

    async def record(self, *, even_if_known: bool = False) -> None:
        """Store how far everything is settled, if that is further than before.

        Raises:
            LeaseLost: the replay is not this worker's any more.
        """
        checkpoint = self._ledger.checkpoint()
        if checkpoint == self._recorded and not even_if_known:
            return
        await self._tell(checkpoint)
        with_sample = self._samples.is_due(_monotonic_ms()) or even_if_known
        await self._lease.write(
            lambda store, lease: store.checkpoint(
                lease,
                checkpoint.offset,
                checkpoint.counts,
                checkpoint.failures,
                checkpoint.statuses,
                with_sample=with_sample,
            )
        )
        self._ledger.recorded(checkpoint)
        self._equipment.metrics.count_events(self._recorded.counts, checkpoint.counts)
        self._recorded = checkpoint

    async def _tell(self, checkpoint: Checkpoint) -> None:
        """Tell `replay_outcomes` what lies between the last checkpoint on record and this one."""
        start, epoch = self._recorded.offset, self._claim.lease.epoch
        # An empty stretch is told where somebody before may have told of another one from there.
        is_taken_up = start == self.resume_at and epoch > 1
        if checkpoint.offset == start or not (checkpoint.hours or is_taken_up):
            return
        replay = self._claim.replay
        await self._equipment.book.note(
            ReplayOutcome(
                replay.id,
                replay.webhook_id,
                self._equipment.settings.origin,
                replay.source,
                epoch,
                start,
                checkpoint.offset,
                time.time_ns() // 1_000_000,
                checkpoint.hours,
            )
        )

    async def _record_until(self, is_carried: asyncio.Event) -> None:
        """Record regularly. A record under way is waited for: cut off, it would be told twice."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._equipment.settings.checkpoint_interval_s):
                        await is_carried.wait()
                        return
                await self.record()
        except LeaseLost as lost:
            self.stop(lost)

    async def _watch_webhook(self) -> None:
        webhook_id, target = self._claim.webhook.id, self._target
        try:
            while True:
                await asyncio.sleep(WEBHOOK_AGE_S)
                target.webhook = await self._lease.ask(lambda store: store.webhook(webhook_id))
                target.check()
        except WebhookNotFound:
            # Its replays are cancelled with it; the next heartbeat would say so.
            self.stop(LeaseLost())
        except (ReplayRefused, ReplayPutOff) as reason:
            self.stop(reason)

    async def _carry(self, courier: Courier) -> None:
        try:
            await courier.run()
        except ReplayRefused as reason:
            self.stop(reason)

    async def _read(self, backlog: Backlog) -> None:
        try:
            await self._open_intake().run(backlog)
        except LogError as reason:
            self.stop(reason)

    @property
    def _in_flight(self) -> int:
        return self._options.max_in_flight or self._equipment.settings.max_in_flight

    @property
    def _parcel_events(self) -> int:
        # Of a replay at five events a second, a request brings no more than a second's worth.
        return min(self._options.batch_size, self._options.max_events_per_second)

    def _backlog(self) -> Backlog:
        return Backlog(self._ledger, self._in_flight, self._parcel_events)

    def _route(self, backlog: Backlog) -> Route:
        settings = self._equipment.settings
        policy = RetryPolicy(
            settings.retry_attempts_max, settings.retry_base_s, settings.retry_cap_s
        )
        return Route(
            replay_id=self._claim.lease.replay_id,
            target=self._target,
            sender=self._equipment.sender,
            policy=policy,
            lease=self._lease,
            backlog=backlog,
            health=ProbedEndpointHealth(policy),
            pace=RateLimiter(self._options.max_events_per_second, time.monotonic()),
            metrics=self._equipment.metrics.deliveries,
            is_batched=self._options.batch_size > 1,
            events_max=self._parcel_events,
        )

    def _open_intake(self) -> Intake:
        settings, replay, offsets = self._equipment.settings, self._claim.replay, self._offsets
        start = max(offsets.start, self.resume_at - RECORDS_REMEMBERED)
        reader = ReplayReader(
            settings.bootstrap_servers,
            _TOPICS[replay.source],
            OffsetRange(offsets.partition, start, offsets.end),
            key=replay.webhook_id.encode(),
            window=replay.window,
            properties=settings.kafka_properties,
        )
        return Intake(
            reader,
            self._selection,
            SeenHashes(settings.dedupe_entries),
            Packer(self._parcel_events),
            resume_at=self.resume_at,
        )

    def _cut_off(self) -> None:
        for courier in self._couriers:
            courier.cut_off()


def _age_ms(replay: Replay) -> int:
    """How long ago a replay that was just claimed was begun, by the clock that noted both."""
    if replay.heartbeat_ms is None or replay.started_ms is None:
        return 0
    return replay.heartbeat_ms - replay.started_ms


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
