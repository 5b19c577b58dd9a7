"""Tells webhooks how their replays ended, beside the replays and never in their way."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import Final

from app.domain.delivery import AttemptOutcome, Delivered, Rejected, Unreachable
from app.domain.model import Notice
from app.domain.notices import notice_body, notice_id, pause_s
from app.replay_workers.equipment import Equipment
from app.replay_workers.target import Target
from app.store import StoreUnavailable
from app.webhooks.request import webhook_headers

AT_A_TIME: Final = 8

_STORE_AWAY_S: Final = 2.0

_log: Final = logging.getLogger(__name__)


class Notifier:
    """Claims the notices that are due, and sends each once per claim."""

    def __init__(self, equipment: Equipment) -> None:
        self._equipment = equipment
        self._lease_s = equipment.settings.lease_s + equipment.settings.delivery_timeout_s
        self._telling: set[asyncio.Task[None]] = set()
        self._is_finishing = False

    async def run(self) -> None:
        """Tell until told to finish."""
        async with asyncio.TaskGroup() as group:
            while not self._is_finishing:
                notice = await self._claim() if len(self._telling) < AT_A_TIME else None
                if notice is None:
                    await asyncio.sleep(self._equipment.settings.poll_interval_s)
                    continue
                task = group.create_task(self._tell(notice))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    async def finish(self, patience_s: float) -> None:
        """Claim no more, and wait so long for what is being told."""
        self._is_finishing = True
        if self._telling:
            await asyncio.wait(self._telling, timeout=patience_s)

    async def _claim(self) -> Notice | None:
        try:
            return await asyncio.to_thread(self._equipment.store.claim_notice, self._lease_s)
        except StoreUnavailable:
            # The worker, which claims replays, says so.
            await asyncio.sleep(_STORE_AWAY_S)
            return None

    async def _tell(self, notice: Notice) -> None:
        started_s, body = time.monotonic(), notice_body(notice.replay)
        outcome = await self._send(notice, body)
        metrics = self._equipment.metrics
        metrics.deliveries.count(outcome, time.monotonic() - started_s, len(body))
        metrics.count_notice(isinstance(outcome, Delivered))
        # Should the store not hear of it, the notice is claimed again, and told twice.
        with suppress(StoreUnavailable):
            await asyncio.to_thread(self._record, notice, outcome)

    async def _send(self, notice: Notice, body: bytes) -> AttemptOutcome:
        target = Target(notice.replay, notice.webhook, self._equipment.guard)
        now_ms = time.time_ns() // 1_000_000
        headers = webhook_headers(
            target.secrets(now_ms),
            notice_id(notice.replay),
            now_ms // 1_000,
            body,
            notice.replay.id,
        )
        return await self._equipment.sender.send(target.url, headers, body)

    def _record(self, notice: Notice, outcome: AttemptOutcome) -> None:
        store, replay_id, attempt = self._equipment.store, notice.replay.id, notice.attempt
        if isinstance(outcome, Delivered):
            store.finish_notice_attempt(replay_id, attempt)
            _log.info("notice-told", extra={"replay": replay_id, "attempt": attempt})
            return
        wait_s = pause_s(attempt)
        store.finish_notice_attempt(replay_id, attempt, wait_s)
        reason = outcome.reason if isinstance(outcome, Rejected | Unreachable) else ""
        event = "notice-given-up" if wait_s is None else "notice-not-taken"
        _log.warning(event, extra={"replay": replay_id, "attempt": attempt, "reason": reason})
