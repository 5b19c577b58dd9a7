"""Sends deliveries once more, one attempt each, next to the replays of a worker.

Resends are requested by owners of webhooks, and created by the live path as scheduled retries.
"""

import asyncio
import logging
import random
import time
from contextlib import suppress
from typing import Final, NamedTuple

from app.audit_log import record_change
from app.config import Settings
from app.delivery.attempt import AttemptSender, WebhookMessage
from app.domain.dedupe import lasting_digest
from app.domain.deliveries import DeliveryStatus
from app.domain.delivery import Delivered, LiveOutcome, Rejected, Unreachable
from app.domain.model import Webhook, WebhookStatus
from app.domain.resends import (
    CLAIMS_MAX,
    CONCURRENT_MAX,
    ResendClaim,
    ResendResult,
    ScheduledRetry,
)
from app.domain.retry import GONE
from app.domain.scheduled_retries import scheduled_pause_s
from app.domain.tallies import CountedTally, SettledDelivery, tallies_of
from app.log.deliveries import DeliveryReader
from app.log.errors import LogError, NotInLog
from app.process import until_next_tick
from app.replay_workers.delivery import LAST_REQUESTS_S
from app.replay_workers.outcome_publisher import EndedRetries, OutcomePublisher
from app.replay_workers.work_watch import WorkWatch
from app.store import Store, StoreUnavailable, WebhookNotFound

_RETRY_S: Final = 2.0
"""The pause after the store or the log did not answer."""

_LEASE_S: Final = 60.0

_log: Final = logging.getLogger(__name__)


class _Sent(NamedTuple):
    """The result of a claim. The rest is about scheduled retries.

    `outcome` is the one to count, if the event is settled by this; else the next retry is due in
    `pause_s`. `webhook` is the one that was sent to, `digest` that of the event, if it was read.
    """

    result: ResendResult
    outcome: LiveOutcome | None = None
    pause_s: float | None = None
    webhook: Webhook | None = None
    digest: int | None = None


class Resender:
    """Claims resends that are due, and sends each once. For one event loop.

    A resend whose result is not recorded is claimed again by any worker when its lease is over, so
    the receiver may get it twice, with the same event id.
    """

    def __init__(
        self,
        store: Store,
        work: WorkWatch,
        reader: DeliveryReader,
        attempts: AttemptSender,
        outcomes: OutcomePublisher,
        settings: Settings,
        worker: str,
    ) -> None:
        self._store = store
        self._work = work
        self._reader = reader
        self._attempts = attempts
        self._outcomes = outcomes
        self._origin = settings.origin
        self._schedule = settings.retry_schedule
        self._history_ms = settings.history_ms
        self._worker = worker
        self._lease_s = _LEASE_S + settings.delivery_timeout_s
        self._poll_s = settings.poll_interval_s
        self._in_flight: dict[asyncio.Task[None], ResendClaim] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Poll now."""
        self._wake.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Send until `stopping` is set; return when the requests in flight are answered."""
        async with asyncio.TaskGroup() as group:
            waking = group.create_task(self._wake_when_set(stopping))
            while not stopping.is_set():
                self._wake.clear()
                for claim in await self._claim():
                    task = group.create_task(self._send(claim))
                    self._in_flight[task] = claim
                    task.add_done_callback(self._remove)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), until_next_tick(self._poll_s))
            waking.cancel()
            if self._in_flight:
                _, late = await asyncio.wait(self._in_flight, timeout=LAST_REQUESTS_S)
                for task in late:
                    # Its lease expires, and another worker sends it.
                    task.cancel()

    async def _wake_when_set(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self.wake()

    def _remove(self, task: "asyncio.Task[None]") -> None:
        del self._in_flight[task]
        self.wake()  # there is room for another one

    async def _claim(self) -> list[ResendClaim]:
        room = CONCURRENT_MAX - len(self._in_flight)
        if room <= 0:
            return []
        busy = list(self._in_flight.values())
        try:
            if await self._work.is_idle() or not await asyncio.to_thread(
                self._store.is_any_resend_due, self._origin
            ):
                return []
            return await asyncio.to_thread(
                self._store.claim_resends, self._worker, self._lease_s, self._origin, room, busy
            )
        except StoreUnavailable:
            # The worker, which claims replays, logs it.
            await asyncio.sleep(_RETRY_S)
            return []

    async def _send(self, claim: ResendClaim) -> None:
        # If the store does not answer, the resend is claimed again when its lease is over.
        with suppress(StoreUnavailable):
            try:
                sent = await self._attempt(claim)
            except (LogError, StoreUnavailable) as error:
                extra = {"resend": claim.resend_id, "reason": str(error)}
                _log.warning("resend-postponed", extra=extra)
                await asyncio.to_thread(self._store.release_resend, claim, _RETRY_S)
                return
            await self._publish(claim, sent)
            is_recorded = await asyncio.to_thread(self._record, claim, sent)
            event = "resend-finished" if is_recorded else "resend-claimed-again"
            _log.info(event, extra={"resend": claim.resend_id, "status": sent.result.status})

    async def _attempt(self, claim: ResendClaim) -> _Sent:
        if claim.claims > CLAIMS_MAX:
            return _skipped(f"given up: {CLAIMS_MAX} workers did not finish it", LiveOutcome.FAILED)
        webhook = await asyncio.to_thread(self._webhook, claim)
        if webhook is None or webhook.status is not WebhookStatus.ENABLED:
            state = "deleted" if webhook is None else webhook.status
            counted = None if webhook is None else LiveOutcome.DISABLED
            return _skipped(f"the webhook is {state}", counted)
        try:
            delivery, body = await asyncio.to_thread(self._reader.event, claim.place)
        except NotInLog:
            return _skipped("the log no longer has the event", LiveOutcome.FAILED)
        attempt = await self._attempts.send(WebhookMessage(delivery.event_id, body), webhook)
        duration_ms = 1_000 * attempt.duration_s
        digest = lasting_digest(delivery.event_id, body)
        if isinstance(attempt.outcome, Delivered):
            result = ResendResult(DeliveryStatus.SUCCEEDED, duration_ms, attempt.outcome.status)
            return _Sent(result, LiveOutcome.DELIVERED, digest=digest)
        assert isinstance(attempt.outcome, Rejected | Unreachable), "resends are never withheld"
        sent = self._failed(claim.retry, webhook, attempt.outcome, duration_ms)
        return sent._replace(digest=digest)

    def _failed(
        self,
        retry: ScheduledRetry | None,
        webhook: Webhook,
        outcome: Rejected | Unreachable,
        duration_ms: float,
    ) -> _Sent:
        result = ResendResult(DeliveryStatus.FAILED, duration_ms, reason=outcome.reason)
        if isinstance(outcome, Rejected):
            result = result._replace(response_status=outcome.status, response=outcome.response)
        if retry is None:
            return _Sent(result)
        scheduled_s = self._schedule.of_webhook(webhook).scheduled_s
        jitter = random.random()  # noqa: S311  spreads load, guards nothing
        pause_s = scheduled_pause_s(scheduled_s, retry.number + 1, outcome, jitter)
        return _Sent(result, LiveOutcome.FAILED if pause_s is None else None, pause_s, webhook)

    async def _publish(self, claim: ResendClaim, sent: _Sent) -> None:
        """Publish the outcome of an event whose scheduled retries end, for readers of the log."""
        if claim.retry is None or sent.pause_s is not None:
            return
        # That of a deleted webhook is not counted in its statistics.
        outcome = sent.outcome or LiveOutcome.DISABLED
        ended = EndedRetries(
            claim.webhook_id, claim.place, claim.retry, outcome, sent.result, sent.digest
        )
        await self._outcomes.publish_ended_retries([ended])

    def _record(self, claim: ResendClaim, sent: _Sent) -> bool:
        """Whether the result was recorded; counts a scheduled retry that is the last one. Blocks.

        Raises:
            StoreUnavailable: another worker sends it again.
        """
        if claim.retry is None:
            return self._store.finish_resend(claim, sent.result)
        if sent.pause_s is not None:
            return self._store.retry_later(claim, sent.result, sent.pause_s)
        if sent.webhook is not None and sent.result.response_status == GONE:
            self._disable(sent.webhook, sent.result.reason)
        counted: list[CountedTally] = []
        if sent.outcome is not None:
            settled = SettledDelivery(
                claim.webhook_id,
                sent.outcome,
                claim.retry.event_ms,
                time.time_ns() // 1_000_000,
                sent.result.duration_ms,
            )
            counted = tallies_of([settled], self._history_ms)
        return self._store.finish_resend(claim, sent.result, counted)

    def _disable(self, webhook: Webhook, reason: str | None) -> None:
        """Standard Webhooks: a receiver that answers 410 must not be sent anything again."""
        why = f"the receiver wants no more events: {reason}"
        with suppress(WebhookNotFound):
            disabled = self._store.disable_webhook(webhook.id, why, at_url=webhook.url)
            if disabled.status is WebhookStatus.DISABLED:
                record_change(
                    "disableWebhook", webhook.id, account_id=webhook.account_id, reason=why
                )

    def _webhook(self, claim: ResendClaim) -> Webhook | None:
        try:
            return self._store.webhook(claim.webhook_id)
        except WebhookNotFound:
            return None


def _skipped(reason: str, outcome: LiveOutcome | None) -> _Sent:
    return _Sent(ResendResult(DeliveryStatus.SKIPPED, reason=reason), outcome)
