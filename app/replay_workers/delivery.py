"""Delivers one range of the log: intake -> queue -> couriers -> ledger -> checkpoints."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Final

from app.config import Settings
from app.log.history import LogHistory
from app.log.reader import ReplayReader
from app.log.topics import DELIVERY_LOG
from app.replay.checkpointing import DeliveryLedger
from app.replay.dedupe import SeenHashes
from app.replay.health import ReceiverHealth
from app.replay.model import Claim, OffsetRange
from app.replay.retry import RetryPolicy
from app.replay_workers.courier import Courier, Route
from app.replay_workers.intake import Intake
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.metrics import WorkerMetrics
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender

LAST_REQUESTS_S: Final = 8.0
"""How long requests under way may take when the process is to end; supervisors wait ten."""


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a worker lends to all its jobs."""

    settings: Settings
    store: Store
    history: LogHistory
    guard: Guard
    sender: WebhookSender
    metrics: WorkerMetrics


class Delivery:
    """The delivery of `offsets`, from the checkpoint of `claim` on."""

    def __init__(
        self, claim: Claim, offsets: OffsetRange, lease: LeaseKeeper, equipment: Equipment
    ) -> None:
        checkpoint = claim.replay.checkpoint
        self._claim = claim
        self._offsets = offsets
        self._lease = lease
        self._equipment = equipment
        self.resume_at = offsets.start if checkpoint is None else checkpoint
        self._ledger = DeliveryLedger(self.resume_at, claim.replay.counts)
        self._recorded = self._ledger.checkpoint()
        self._couriers: list[Courier] = []
        self._intake: asyncio.Task[None] | None = None

    @property
    def counts_by_name(self) -> dict[str, int]:
        """What became of the records below the last checkpoint on record."""
        return asdict(self._recorded.counts)

    @property
    def is_complete(self) -> bool:
        """Whether every record of the range is settled."""
        return self._ledger.checkpoint().offset >= self._offsets.end

    async def run(self) -> None:
        """Deliver until all is settled, or until stopped.

        Raises in a group:
            ReplayRefused: the receiver makes it pointless to go on.
            HistoryLost: records of the range are gone from the log.
            LogUnavailable: the log does not answer.
            LeaseLost: the replay is not this worker's any more.
        """
        if self.is_complete:
            return
        async with asyncio.TaskGroup() as group:
            checkpoints = group.create_task(self._record_regularly())
            route = self._route()
            self._couriers = [Courier(route) for _ in range(self._equipment.settings.max_in_flight)]
            self._intake = group.create_task(self._open_intake(route).run())
            await asyncio.wait([group.create_task(courier.run()) for courier in self._couriers])
            checkpoints.cancel()

    def stop(self) -> None:
        """Take no more attempts; `run` returns once the requests under way are answered."""
        if self._intake is None:
            return
        self._intake.cancel()
        for courier in self._couriers:
            courier.stop()
        asyncio.get_running_loop().call_later(LAST_REQUESTS_S, self._cut_off)

    async def record(self) -> None:
        """Store how far everything is settled, if that is further than before.

        Raises:
            LeaseLost: the replay is not this worker's any more.
        """
        checkpoint = self._ledger.checkpoint()
        if checkpoint == self._recorded:
            return
        await self._lease.write(
            lambda store, lease: store.checkpoint(
                lease, checkpoint.offset, checkpoint.counts, checkpoint.failures
            )
        )
        self._ledger.recorded(checkpoint)
        self._equipment.metrics.count_events(self._recorded.counts, checkpoint.counts)
        self._recorded = checkpoint

    async def _record_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._equipment.settings.checkpoint_interval_s)
            await self.record()

    def _route(self) -> Route:
        settings = self._equipment.settings
        policy = RetryPolicy(
            settings.retry_attempts_max, settings.retry_base_s, settings.retry_cap_s
        )
        return Route(
            replay_id=self._claim.lease.replay_id,
            webhook=self._claim.webhook,
            sender=self._equipment.sender,
            policy=policy,
            lease=self._lease,
            ledger=self._ledger,
            health=ReceiverHealth(policy),
        )

    def _open_intake(self, route: Route) -> Intake:
        settings, replay = self._equipment.settings, self._claim.replay
        reader = ReplayReader(
            settings.bootstrap_servers,
            DELIVERY_LOG,
            self._offsets,
            key=replay.webhook_id.encode(),
            window=replay.window,
            properties=settings.kafka_properties,
        )
        seen = SeenHashes(settings.dedupe_entries)
        return Intake(reader, route, seen, resume_at=self.resume_at, couriers=len(self._couriers))

    def _cut_off(self) -> None:
        for courier in self._couriers:
            courier.cut_off()
