"""Sends deliveries once more on request, one attempt each, next to the replays of a worker."""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Final

from app.delivery.attempt import AttemptSender, WebhookMessage
from app.domain.deliveries import DeliveryStatus
from app.domain.delivery import Delivered, Rejected, Unreachable
from app.domain.model import Webhook, WebhookStatus
from app.domain.resends import CLAIMS_MAX, CONCURRENT_MAX, ResendClaim, ResendResult
from app.log.deliveries import DeliveryReader
from app.log.errors import LogError, NotInLog
from app.replay_workers.delivery import LAST_REQUESTS_S
from app.store import Store, StoreUnavailable, WebhookNotFound

_RETRY_S: Final = 2.0
"""The pause after the store or the log did not answer."""

_LEASE_S: Final = 60.0

_log: Final = logging.getLogger(__name__)


class Resender:
    """Claims resends that are due, and sends each once. For one event loop.

    A resend whose result is not recorded is claimed again by any worker when its lease is over, so
    the receiver may get it twice, with the same event id.
    """

    def __init__(
        self,
        store: Store,
        reader: DeliveryReader,
        attempts: AttemptSender,
        *,
        origin: str,
        worker: str,
        delivery_timeout_s: float,
        poll_s: float,
    ) -> None:
        self._store = store
        self._reader = reader
        self._attempts = attempts
        self._origin = origin
        self._worker = worker
        self._lease_s = _LEASE_S + delivery_timeout_s
        self._poll_s = poll_s
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
                    await asyncio.wait_for(self._wake.wait(), self._poll_s)
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
            if not await asyncio.to_thread(self._store.is_any_resend_due, self._origin):
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
                result = await self._result(claim)
            except (LogError, StoreUnavailable) as error:
                extra = {"resend": claim.resend_id, "reason": str(error)}
                _log.warning("resend-postponed", extra=extra)
                await asyncio.to_thread(self._store.release_resend, claim, _RETRY_S)
                return
            is_recorded = await asyncio.to_thread(self._store.finish_resend, claim, result)
            event = "resend-finished" if is_recorded else "resend-claimed-again"
            _log.info(event, extra={"resend": claim.resend_id, "status": result.status})

    async def _result(self, claim: ResendClaim) -> ResendResult:
        skipped = partial(ResendResult, DeliveryStatus.SKIPPED)
        if claim.claims > CLAIMS_MAX:
            return skipped(reason=f"given up: {CLAIMS_MAX} workers did not finish it")
        webhook = await asyncio.to_thread(self._webhook, claim)
        if webhook is None or webhook.status is not WebhookStatus.ENABLED:
            state = "deleted" if webhook is None else webhook.status
            return skipped(reason=f"the webhook is {state}")
        try:
            delivery, body = await asyncio.to_thread(self._reader.event, claim.place)
        except NotInLog:
            return skipped(reason="the log no longer has the event")
        attempt = await self._attempts.send(WebhookMessage(delivery.event_id, body), webhook)
        outcome, duration_ms = attempt.outcome, 1_000 * attempt.duration_s
        if isinstance(outcome, Delivered):
            return ResendResult(DeliveryStatus.SUCCEEDED, duration_ms, outcome.status)
        assert isinstance(outcome, Rejected | Unreachable), "resends are never withheld"
        failed = partial(ResendResult, DeliveryStatus.FAILED, duration_ms, reason=outcome.reason)
        if isinstance(outcome, Unreachable):
            return failed()
        return failed(response_status=outcome.status, response=outcome.response)

    def _webhook(self, claim: ResendClaim) -> Webhook | None:
        try:
            return self._store.webhook(claim.webhook_id)
        except WebhookNotFound:
            return None
