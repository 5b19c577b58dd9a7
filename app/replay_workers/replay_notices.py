"""The notices of ended replays to their webhooks."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from app.delivery.attempt import WebhookMessage
from app.domain.delivery import AttemptOutcome, Delivered, Rejected, Unreachable
from app.domain.model import ReplayNotice
from app.domain.notices import notice_body, notice_id, pause_s
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.endpoint import ReplayEndpoint
from app.replay_workers.notifier import Send

_log: Final = logging.getLogger(__name__)


class ReplayOutbox:
    """Notices of replays that are due, see `store.notices`.

    `claimed` is called after each claim, which may have stored notices of the account.
    """

    def __init__(self, dependencies: WorkerDependencies, claimed: Callable[[], None]) -> None:
        self._dependencies = dependencies
        self._claimed = claimed

    async def claim(self, lease_s: float) -> Send | None:
        """Claim a notice; see `Outbox`."""
        if await self._dependencies.work.is_idle():
            return None
        notice = await asyncio.to_thread(self._dependencies.store.claim_notice, lease_s)
        if notice is None:
            return None
        self._claimed()
        return partial(self._send, notice)

    async def _send(self, notice: ReplayNotice) -> None:
        dependencies, replay = self._dependencies, notice.replay
        attempt = await dependencies.attempts.send(
            WebhookMessage(notice_id(replay), notice_body(replay)),
            notice.webhook,
            url=ReplayEndpoint(replay, notice.webhook, dependencies.guard).url,
            replay_id=replay.id,
        )
        dependencies.metrics.count_notice(isinstance(attempt.outcome, Delivered))
        await asyncio.to_thread(self._record_outcome, notice, attempt.outcome)

    def _record_outcome(self, notice: ReplayNotice, outcome: AttemptOutcome) -> None:
        store = self._dependencies.store
        fields = {"replay": notice.replay.id, "attempt": notice.attempt}
        if isinstance(outcome, Delivered):
            store.finish_notice_attempt(notice)
            _log.info("notice-sent", extra=fields)
            return
        wait_s = pause_s(notice.attempt)
        store.finish_notice_attempt(notice, wait_s)
        reason = outcome.reason if isinstance(outcome, Rejected | Unreachable) else ""
        event = "notice-given-up" if wait_s is None else "notice-failed"
        _log.warning(event, extra=fields | {"reason": reason})
