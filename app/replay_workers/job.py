"""One claimed replay, from its claim until it is finished, lost or given back.

begin: the offsets of the window are looked up once and stored; a take-over finds them there
deliver: what `delivery` does, with heartbeats beside it
finish: complete, fail, release or postpone, all under the lease
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from app.domain.model import Claim, Lease, OffsetRange
from app.log.errors import HistoryLost, LogUnavailable, WindowNotRetained
from app.replay_workers.choosing import Chooser
from app.replay_workers.delivery import Delivery
from app.replay_workers.equipment import Equipment
from app.replay_workers.errors import (
    LeaseLost,
    ReceiverGone,
    ReplayPutOff,
    ReplayRefused,
    WorkerStopping,
)
from app.replay_workers.journal import Journal
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.target import Target
from app.store import Store, WebhookNotFound

CLAIMS_IN_VAIN_MAX: Final = 20
"""A replay that so many claims brought no further would take every next worker down as well."""


class ReplayJob:
    """Works on one claim. However it ends, the replay is finished, or free for another claim."""

    def __init__(self, claim: Claim, equipment: Equipment, claim_sent_s: float) -> None:
        self._claim = claim
        self._equipment = equipment
        self._journal = Journal(claim)
        self._target = Target(claim.replay, claim.webhook, equipment.guard)
        self._lease = LeaseKeeper(
            equipment.store,
            claim.lease,
            lease_s=equipment.settings.lease_s,
            heartbeat_s=equipment.settings.heartbeat_s,
            sent_s=claim_sent_s,
            note_heartbeat=equipment.metrics.count_heartbeat,
        )
        self._delivery: Delivery | None = None
        self._end: Exception | None = None
        """Why the work is to end before its time, once that is so."""

    @property
    def remaining(self) -> int:
        """How many records this replay has still to pass, as far as is known."""
        return 0 if self._delivery is None else self._delivery.remaining

    async def run(self) -> None:
        """Work until the replay is out of this worker's hands. Raises nothing but a cancel."""
        try:
            async with asyncio.TaskGroup() as group:
                heartbeats = group.create_task(self._keep_lease())
                await self._work()
                heartbeats.cancel()
            await self._finish("completed", Store.complete)
        except* LeaseLost:
            await self._leave()
        except* WorkerStopping:
            await self._finish("released", Store.release)
        except* (ReplayPutOff, LogUnavailable) as reasons:
            await self._postpone(_first(reasons))
        except* (ReplayRefused, WindowNotRetained, HistoryLost) as refusals:
            await self._fail(_first(refusals))
        except* Exception as errors:
            self._abandon(_first(errors))

    def stop(self) -> None:
        """Take no more attempts; `run` returns once the requests under way are answered."""
        self._end_for(WorkerStopping())

    def _end_for(self, reason: Exception) -> None:
        self._end = self._end or reason
        if self._delivery is not None:
            self._delivery.stop(self._end)

    async def _keep_lease(self) -> None:
        try:
            await self._lease.run()
        except LeaseLost as lost:
            self._end_for(lost)

    async def _work(self) -> None:
        self._check_claim()
        chooser = Chooser(self._claim.replay, self._equipment, self._lease, self._journal)
        offsets = await self._begin(chooser)
        selection = await chooser.selection(offsets, lambda: self._end is None)
        self._delivery = Delivery(
            self._claim, offsets, selection, self._target, self._lease, self._equipment
        )
        self._equipment.postponements.forget(self._claim.lease.replay_id)
        span = f"{offsets.partition}:{offsets.start}-{offsets.end}"
        self._journal.note("reading", offsets=span, resume_at=self._delivery.resume_at)
        if self._end is not None:
            raise self._end
        await self._delivery.run()

    def _check_claim(self) -> None:
        """Refuse what no worker can do, before anything is sent."""
        claim = self._claim
        word = "taken-over" if claim.is_takeover else "claimed"
        self._journal.note(word, worker=claim.replay.worker)
        if claim.replay.claims_in_vain > CLAIMS_IN_VAIN_MAX:
            raise ReplayRefused(f"claimed {CLAIMS_IN_VAIN_MAX} times, and brought no further")
        self._target.check()

    async def _begin(self, chooser: Chooser) -> OffsetRange:
        offsets = self._claim.replay.offsets or await chooser.offsets()
        await self._lease.write(lambda store, lease: store.begin_delivery(lease, offsets))
        return offsets

    async def _leave(self) -> None:
        """Say one last time how far it came: who paused or cancelled the replay may hear it."""
        if self._delivery is None:
            self._note("lost")
            return
        try:
            await self._delivery.record(even_if_known=True)
            self._note("stopped")
        except LeaseLost:
            self._note("lost")

    async def _postpone(self, error: BaseException) -> None:
        reason = f"the log: {error}" if isinstance(error, LogUnavailable) else str(error)
        pause_s = self._equipment.postponements.pause_s(self._claim.lease.replay_id)
        await self._finish(
            "postponed", lambda store, lease: store.postpone(lease, reason, pause_s), reason
        )

    async def _fail(self, error: BaseException) -> None:
        reason = str(error)
        if isinstance(error, ReceiverGone):
            await self._disable_webhook(reason)
        await self._finish("failed", lambda store, lease: store.fail(lease, reason), reason)

    async def _disable_webhook(self, reason: str) -> None:
        webhook = self._target.webhook
        if not self._target.is_webhook:
            return
        with suppress(WebhookNotFound):
            now = await self._lease.ask(
                lambda store: store.disable_webhook(webhook.id, reason, at_url=webhook.url)
            )
            # The receiver that said so may be the one of before.
            if now.url == webhook.url:
                self._journal.audit("disableWebhook", webhook, reason)

    async def _finish(
        self, event: str, change: Callable[[Store, Lease], bool], reason: str | None = None
    ) -> None:
        """Store the last checkpoint and how it ended."""
        try:
            if self._delivery is not None:
                await self._delivery.record()
            await self._lease.write(change)
        except LeaseLost:
            await self._leave()
            return
        self._note(event, reason)

    def _note(self, event: str, reason: str | None = None) -> None:
        fields = {} if reason is None else {"reason": reason}
        counts = {} if self._delivery is None else self._delivery.counts_by_name
        self._journal.note(event, **counts, **fields)
        self._equipment.metrics.count_job(event)

    def _abandon(self, error: BaseException) -> None:
        """Leave the replay until its lease ends; who claims it then may have more luck.

        To give it back would be an orderly end, and a replay that breaks every worker's back
        would go round for ever.
        """
        self._journal.trace("error", error)
        self._note("abandoned", str(error))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group that is no group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
