"""One claimed replay, from its claim until it is finished, lost or released.

begin: the offsets of the window are looked up and stored; a takeover reuses them
deliver: `ReplayDelivery` runs, and heartbeats extend the lease
finish: the replay is completed, failed, released or postponed, under the lease
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from app.audit_log import record_change
from app.domain.model import Claim, Lease, OffsetRange
from app.domain.options import ReplayReason
from app.domain.turns import ReplayActivity, RunningReplay
from app.log.errors import HistoryLost, LogUnavailable, WindowNotRetained
from app.replay_workers.delivery import ReplayDelivery
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.endpoint import ReplayEndpoint
from app.replay_workers.errors import (
    LeaseLost,
    ReceiverFailing,
    ReceiverGone,
    ReplayPostponed,
    ReplayRefused,
    TurnEnded,
    WebhookDisabled,
    WorkerStopping,
)
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.replay_log import ReplayLog
from app.replay_workers.selection import SelectionReader
from app.store import Store, WebhookNotFound

CLAIMS_WITHOUT_PROGRESS_MAX: Final = 20
"""After so many consecutive claims without progress, the replay probably crashes its workers."""


class ReplayJob:
    """Works on one claim. Afterwards the replay is finished, or free for another claim."""

    def __init__(self, claim: Claim, dependencies: WorkerDependencies, claim_sent_s: float) -> None:
        self._claim = claim
        self._dependencies = dependencies
        self._log = ReplayLog(claim)
        self._endpoint = ReplayEndpoint(claim.replay, claim.webhook, dependencies.guard)
        self._lease = LeaseKeeper(
            dependencies.store,
            claim.lease,
            lease_s=dependencies.settings.lease_s,
            heartbeat_s=dependencies.settings.heartbeat_s,
            sent_s=claim_sent_s,
            count_heartbeat=dependencies.metrics.count_heartbeat,
        )
        self._activity = ReplayActivity(time.monotonic())
        self._delivery: ReplayDelivery | None = None
        self._stop_reason: Exception | None = None

    @property
    def remaining(self) -> int:
        """The number of offsets above the checkpoint, 0 until delivery starts."""
        return 0 if self._delivery is None else self._delivery.remaining

    @property
    def is_stopping(self) -> bool:
        """Whether it starts no more attempts, and will end."""
        return self._stop_reason is not None

    def running(self, now_s: float) -> RunningReplay:
        """What it does, at `now_s` of the monotonic clock."""
        return RunningReplay(
            self._claim.replay.account_id,
            self._activity.turn(now_s),
            self._activity.is_waiting(now_s),
            self._delivery is not None and self._delivery.is_retrying,
        )

    async def run(self) -> None:
        """Work until the replay is finished or released. Raises only on cancellation."""
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
        except* TurnEnded:
            await self._finish("yielded", Store.yield_turn)
        except* (ReplayPostponed, LogUnavailable) as reasons:
            await self._postpone(_first(reasons))
        except* (ReplayRefused, WindowNotRetained, HistoryLost) as refusals:
            await self._fail(_first(refusals))
        except* Exception as errors:
            self._abandon(_first(errors))

    def stop(self) -> None:
        """Start no more attempts; `run` returns once requests in flight are answered."""
        self._stop_for(WorkerStopping())

    def give_way(self) -> None:
        """Stop at the next checkpoint, and return the replay to the end of its account's queue."""
        self._stop_for(TurnEnded())

    def _stop_for(self, reason: Exception) -> None:
        self._stop_reason = self._stop_reason or reason
        if self._delivery is not None:
            self._delivery.stop(self._stop_reason)

    async def _keep_lease(self) -> None:
        try:
            await self._lease.run()
        except LeaseLost as lost:
            self._stop_for(lost)

    async def _work(self) -> None:
        self._check_claim()
        reader = SelectionReader(self._claim.replay, self._dependencies, self._lease, self._log)
        offsets = self._claim.replay.offsets or await reader.read_offsets()
        if not self._claim.has_begun:
            await self._begin(offsets, reader.available_from_ms)
        selection = await reader.read_selection(offsets, lambda: self._stop_reason is None)
        self._delivery = ReplayDelivery(
            self._claim,
            offsets,
            selection,
            self._endpoint,
            self._lease,
            self._dependencies,
            self._activity,
        )
        self._dependencies.postponements.forget(self._claim.lease.replay_id)
        span = f"{offsets.partition}:{offsets.start}-{offsets.end}"
        self._log.info("reading", offsets=span, resume_at=self._delivery.resume_at)
        if self._stop_reason is not None:
            raise self._stop_reason
        await self._delivery.run()

    def _check_claim(self) -> None:
        """Refuse a replay that no worker can finish, before anything is sent."""
        claim = self._claim
        event = "taken-over" if claim.is_takeover else "claimed"
        self._log.info(event, worker=claim.replay.worker)
        if claim.replay.claims_without_progress > CLAIMS_WITHOUT_PROGRESS_MAX:
            raise ReplayRefused(
                f"no progress after {CLAIMS_WITHOUT_PROGRESS_MAX} consecutive claims"
            )
        self._endpoint.check()

    async def _begin(self, offsets: OffsetRange, available_from_ms: int | None) -> None:
        await self._lease.write(
            lambda store, lease: store.begin_delivery(
                lease, offsets, available_from_ms=available_from_ms
            )
        )

    async def _leave(self) -> None:
        """Store a last checkpoint, which a paused or cancelled replay still accepts."""
        if self._delivery is None:
            self._log_end("lost")
            return
        try:
            await self._delivery.record(even_if_unchanged=True)
            self._log_end("stopped")
        except LeaseLost:
            self._log_end("lost")

    async def _postpone(self, error: BaseException) -> None:
        reason = f"the log: {error}" if isinstance(error, LogUnavailable) else str(error)
        pause_s = self._dependencies.postponements.next_pause_s(self._claim.lease.replay_id)
        if isinstance(error, ReceiverFailing):
            pause_s = self._dependencies.settings.retry_cap_s
        await self._finish(
            "postponed", lambda store, lease: store.postpone(lease, reason, pause_s), reason
        )

    async def _fail(self, error: BaseException) -> None:
        reason = str(error)
        if isinstance(error, ReceiverGone):
            await self._disable_webhook(reason)
        await self._finish("failed", self._end_as_failed(error), reason)

    def _end_as_failed(self, error: BaseException) -> Callable[[Store, Lease], bool]:
        """Fail the replay; the rest of a recovery is recovered later, if that can be."""
        replay, reason = self._claim.replay, str(error)
        is_due = isinstance(error, HistoryLost)
        # A webhook recovers when it is enabled again.
        if replay.reason is ReplayReason.RECOVERY and (
            is_due or isinstance(error, WebhookDisabled | ReceiverGone)
        ):
            return lambda store, lease: store.fail_recovery(lease, reason, replay, is_due=is_due)
        return lambda store, lease: store.fail(lease, reason)

    async def _disable_webhook(self, reason: str) -> None:
        webhook = self._endpoint.webhook
        if not self._endpoint.is_webhook:
            return
        with suppress(WebhookNotFound):
            stored = await self._lease.query(
                lambda store: store.disable_webhook(webhook.id, reason, at_url=webhook.url)
            )
            # The webhook may have a new URL, which did not answer 410.
            if stored.url == webhook.url:
                record_change(
                    "disableWebhook",
                    webhook.id,
                    account_id=webhook.account_id,
                    reason=reason,
                    replay=self._claim.lease.replay_id,
                )

    async def _finish(
        self, event: str, change: Callable[[Store, Lease], bool], reason: str | None = None
    ) -> None:
        """Store the last checkpoint and the final state."""
        try:
            if self._delivery is not None:
                await self._delivery.record()
            await self._lease.write(change)
        except LeaseLost:
            await self._leave()
            return
        self._log_end(event, reason)

    def _log_end(self, event: str, reason: str | None = None) -> None:
        fields = {} if reason is None else {"reason": reason}
        counts = {} if self._delivery is None else self._delivery.counts_by_name
        self._log.info(event, **counts, **fields)
        is_partial = event == "completed" and counts.get("failed")
        self._dependencies.metrics.count_job("completed_with_failures" if is_partial else event)

    def _abandon(self, error: BaseException) -> None:
        """Leave the replay until its lease expires; the next claim may succeed.

        A release would reset the count of claims without progress, and a replay that crashes its
        workers would be claimed forever.
        """
        self._log.exception("error", error)
        self._log_end("abandoned", str(error))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first leaf of an exception group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
