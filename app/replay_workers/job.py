"""One claimed replay, from its claim until it is finished, lost or given back.

begin: the offsets of the window are looked up once and stored; a take-over finds them there
deliver: what `delivery` does, with heartbeats beside it
finish: complete, fail or release, all under the lease
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from app.log.errors import HistoryLost, WindowNotRetained
from app.replay.lateness import disorder_ms
from app.replay.model import Claim, Lease, OffsetRange
from app.replay_workers.delivery import Delivery, Equipment
from app.replay_workers.errors import LeaseLost, ReplayRefused, WorkerStopping
from app.replay_workers.journal import Journal
from app.replay_workers.lease_keeper import LeaseKeeper
from app.store import Store, StoreUnavailable
from app.webhooks.guard import UrlRefused

CLAIMS_MAX: Final = 20
"""A replay that so many claims did not finish would take every further worker down as well."""

_HAND_BACK_S_MAX: Final = 30.0
"""The longest wait before a replay with an unexpected error is free again; it doubles from one
second with every claim, so that twenty of them bridge an outage of some minutes."""


class ReplayJob:
    """Works on one claim. However it ends, the replay is finished, or free for another claim."""

    def __init__(self, claim: Claim, equipment: Equipment, claim_sent_s: float) -> None:
        self._claim = claim
        self._equipment = equipment
        self._journal = Journal(claim)
        self._lease = LeaseKeeper(
            equipment.store,
            claim.lease,
            lease_s=equipment.settings.lease_s,
            heartbeat_s=equipment.settings.heartbeat_s,
            sent_s=claim_sent_s,
        )
        self._delivery: Delivery | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Work until the replay is out of this worker's hands. Raises nothing but a cancel."""
        try:
            async with asyncio.TaskGroup() as group:
                heartbeats = group.create_task(self._lease.run())
                await self._work()
                heartbeats.cancel()
            await self._finish("completed", Store.complete)
        except* LeaseLost:
            self._note("lost")
        except* WorkerStopping:
            await self._finish("released", Store.release)
        except* (ReplayRefused, WindowNotRetained, HistoryLost) as refusals:
            reason = str(_first(refusals))
            await self._finish("failed", lambda store, lease: store.fail(lease, reason), reason)
        except* Exception as errors:
            await self._hand_back(_first(errors))

    def stop(self) -> None:
        """Take no more attempts; `run` returns once the requests under way are answered."""
        self._stopping.set()
        if self._delivery is not None:
            self._delivery.stop()

    async def _work(self) -> None:
        self._check_claim()
        offsets = await self._begin()
        self._delivery = Delivery(self._claim, offsets, self._lease, self._equipment)
        span = f"{offsets.partition}:{offsets.start}-{offsets.end}"
        self._journal.note("reading", offsets=span, resume_at=self._delivery.resume_at)
        if not self._stopping.is_set():
            await self._delivery.run()
        if not self._delivery.is_complete:
            raise WorkerStopping

    def _check_claim(self) -> None:
        """Refuse what no worker can do, before anything is sent."""
        claim = self._claim
        is_new = claim.lease.epoch == 1
        self._journal.note("claimed" if is_new else "taken-over", worker=claim.replay.worker)
        if claim.lease.epoch > CLAIMS_MAX:
            raise ReplayRefused(f"claimed {CLAIMS_MAX} times, and never finished")
        try:
            self._equipment.guard.check_url(claim.webhook.url)
        except UrlRefused as refusal:
            raise ReplayRefused(f"the webhook cannot be sent to: {refusal}") from refusal

    async def _begin(self) -> OffsetRange:
        offsets = self._claim.replay.offsets or await self._look_up()
        await self._lease.write(lambda store, lease: store.begin_delivery(lease, offsets))
        return offsets

    async def _look_up(self) -> OffsetRange:
        replay, equipment = self._claim.replay, self._equipment
        return await asyncio.to_thread(
            equipment.history.offsets_for,
            replay.webhook_id,
            replay.window,
            disorder_ms(equipment.settings.lateness_ms),
            lambda partition: equipment.store.late_end(partition, replay.window),
        )

    async def _finish(
        self, event: str, change: Callable[[Store, Lease], bool], reason: str | None = None
    ) -> None:
        """Store the last checkpoint and how it ended."""
        try:
            if self._delivery is not None:
                await self._delivery.record()
            await self._lease.write(change)
        except LeaseLost:
            event = "lost"
        self._note(event, reason)

    def _note(self, event: str, reason: str | None = None) -> None:
        fields = {} if reason is None else {"reason": reason}
        counts = {} if self._delivery is None else self._delivery.counts_by_name
        self._journal.note(event, **counts, **fields)
        self._equipment.metrics.count_job(event)

    async def _hand_back(self, error: BaseException) -> None:
        """Give the replay back after a while; who claims it next may have more luck."""
        self._journal.trace("error", error)
        pause_s = min(2.0 ** (self._claim.lease.epoch - 1), _HAND_BACK_S_MAX)
        with suppress(TimeoutError):
            await asyncio.wait_for(
                self._stopping.wait(), min(pause_s, self._equipment.settings.lease_s / 2)
            )
        try:
            await asyncio.to_thread(self._equipment.store.release, self._claim.lease)
        except StoreUnavailable as unavailable:
            self._journal.warn("not-released", reason=unavailable)
        self._note("handed-back", str(error))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group that is no group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
