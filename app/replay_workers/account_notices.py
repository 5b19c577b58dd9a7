"""The notices of accounts to their endpoints."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from app.delivery.attempt import WebhookMessage
from app.domain.account_notices import AccountNotice, pause_s
from app.domain.delivery import AttemptOutcome, Delivered, Rejected, Unreachable
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.notifier import Send
from app.store import NotFound

_log: Final = logging.getLogger(__name__)

_GONE: Final = 410

_PER_ACCOUNT_MAX: Final = 2
"""Notices of one account that are sent at once: it may have more endpoints than there are slots."""


class AccountOutbox:
    """Notices of accounts that are due, see `store.account_notices`.

    It sends one notice at a time to an endpoint, and two of an account: endpoints that hang leave
    slots of the notifier to other accounts.
    """

    def __init__(self, dependencies: WorkerDependencies) -> None:
        self._dependencies = dependencies
        self._busy: dict[str, str] = {}
        """The accounts of the endpoints to which a notice is being sent, by endpoint."""

    async def claim(self, lease_s: float) -> Send | None:
        """Claim a notice; see `Outbox`."""
        in_flight = Counter(self._busy.values())
        full = [account for account, count in in_flight.items() if count >= _PER_ACCOUNT_MAX]
        notice = await asyncio.to_thread(
            self._dependencies.store.claim_account_notice, lease_s, list(self._busy), full
        )
        if notice is None:
            return None
        self._busy[notice.endpoint.id] = notice.endpoint.account_id
        return partial(self._send, notice)

    async def _send(self, notice: AccountNotice) -> None:
        message = WebhookMessage(notice.id, notice.body)
        try:
            attempt = await self._dependencies.attempts.send(message, notice.endpoint)
            is_sent = isinstance(attempt.outcome, Delivered)
            self._dependencies.metrics.count_account_notice(is_sent)
            await asyncio.to_thread(self._record_outcome, notice, attempt.outcome)
        finally:
            del self._busy[notice.endpoint.id]

    def _record_outcome(self, notice: AccountNotice, outcome: AttemptOutcome) -> None:
        store, extra = self._dependencies.store, _fields(notice)
        if isinstance(outcome, Delivered):
            store.finish_account_notice(notice)
            _log.info("notice-sent", extra=extra)
            return
        reason = outcome.reason if isinstance(outcome, Rejected | Unreachable) else ""
        if isinstance(outcome, Rejected) and outcome.status == _GONE:
            with suppress(NotFound):
                store.disable_notice_endpoint(
                    notice.endpoint.id, reason, at_url=notice.endpoint.url
                )
            _log.warning("notice-endpoint-disabled", extra={**extra, "reason": reason})
            return
        wait_s = pause_s(notice.attempt)
        store.finish_account_notice(notice, reason, retry_in_s=wait_s)
        event = "notice-given-up" if wait_s is None else "notice-failed"
        _log.warning(event, extra={**extra, "reason": reason})


def _fields(notice: AccountNotice) -> Mapping[str, object]:
    return {"notice": notice.id, "endpoint": notice.endpoint.id, "attempt": notice.attempt}
