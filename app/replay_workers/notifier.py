"""Notifies webhooks of the end of their replays, without delaying the replays."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from app.delivery.attempt import WebhookMessage
from app.domain.delivery import AttemptOutcome, Delivered, Rejected, Unreachable
from app.domain.model import ReplayNotice
from app.domain.notices import notice_body, notice_id, pause_s
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.endpoint import ReplayEndpoint
from app.store import StoreUnavailable

CONCURRENT_MAX: Final = 8

_STORE_RETRY_S: Final = 2.0

_log: Final = logging.getLogger(__name__)


class Notifier:
    """Claims notices that are due and sends each once per claim."""

    def __init__(self, dependencies: WorkerDependencies) -> None:
        settings = dependencies.settings
        self._dependencies = dependencies
        self._lease_s = settings.lease_s + settings.delivery_timeout_s
        self._sending: set[asyncio.Task[None]] = set()
        self._is_finishing = False
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Poll now. For the event loop's thread."""
        self._wake.set()

    async def run(self) -> None:
        """Send notices until `finish` is called."""
        async with asyncio.TaskGroup() as group:
            while not self._is_finishing:
                self._wake.clear()
                notice = await self._claim() if len(self._sending) < CONCURRENT_MAX else None
                if notice is None:
                    with suppress(TimeoutError):
                        pause_s = self._dependencies.settings.poll_interval_s
                        await asyncio.wait_for(self._wake.wait(), pause_s)
                    continue
                task = group.create_task(self._send(notice))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def finish(self, timeout_s: float) -> None:
        """Claim no more notices, and wait up to `timeout_s` for those in flight."""
        self._is_finishing = True
        if self._sending:
            await asyncio.wait(self._sending, timeout=timeout_s)

    async def _claim(self) -> ReplayNotice | None:
        try:
            return await asyncio.to_thread(self._dependencies.store.claim_notice, self._lease_s)
        except StoreUnavailable:
            # The worker, which claims replays, logs it.
            await asyncio.sleep(_STORE_RETRY_S)
            return None

    async def _send(self, notice: ReplayNotice) -> None:
        dependencies, replay = self._dependencies, notice.replay
        attempt = await dependencies.attempts.send(
            WebhookMessage(notice_id(replay), notice_body(replay)),
            notice.webhook,
            url=ReplayEndpoint(replay, notice.webhook, dependencies.guard).url,
            replay_id=replay.id,
        )
        dependencies.metrics.count_notice(isinstance(attempt.outcome, Delivered))
        # If the store does not respond, the notice is claimed and sent again.
        with suppress(StoreUnavailable):
            await asyncio.to_thread(self._record_outcome, notice, attempt.outcome)

    def _record_outcome(self, notice: ReplayNotice, outcome: AttemptOutcome) -> None:
        store, replay_id, attempt = self._dependencies.store, notice.replay.id, notice.attempt
        if isinstance(outcome, Delivered):
            store.finish_notice_attempt(replay_id, attempt)
            _log.info("notice-sent", extra={"replay": replay_id, "attempt": attempt})
            return
        wait_s = pause_s(attempt)
        store.finish_notice_attempt(replay_id, attempt, wait_s)
        reason = outcome.reason if isinstance(outcome, Rejected | Unreachable) else ""
        event = "notice-given-up" if wait_s is None else "notice-failed"
        _log.warning(event, extra={"replay": replay_id, "attempt": attempt, "reason": reason})
