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
from app.domain.mail import MailResult, MailVerdict
from app.domain.notice_mails import notice_mail
from app.mail.mailer import Mailer
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.notifier import Send
from app.store import NotFound

_log: Final = logging.getLogger(__name__)

_GONE: Final = 410

_MAILS_MAX: Final = 2
"""Mails that are sent at once: a mail server that hangs leaves slots to requests."""

_PER_ACCOUNT_MAX: Final = 2
"""Notices of one account that are sent at once: it may have more endpoints than there are slots."""


class AccountOutbox:
    """Notices of accounts that are due, see `store.account_notices`.

    It sends one notice at a time to an endpoint, and two of an account: endpoints that hang leave
    slots of the notifier to other accounts. Without a mail server, notices to e-mail addresses
    wait for a worker that has one.
    """

    def __init__(self, dependencies: WorkerDependencies) -> None:
        self._dependencies = dependencies
        self._busy: dict[str, str] = {}
        """The accounts of the endpoints to which a notice is being sent, by endpoint."""
        self._mails = 0
        """How many of them are e-mail addresses."""

    async def claim(self, lease_s: float) -> Send | None:
        """Claim a notice; see `Outbox`."""
        if await self._dependencies.work.is_idle():
            return None
        in_flight = Counter(self._busy.values())
        full = [account for account, count in in_flight.items() if count >= _PER_ACCOUNT_MAX]
        mailer = self._dependencies.mailer
        claim = partial(
            self._dependencies.store.claim_account_notice,
            lease_s,
            list(self._busy),
            full,
            with_mails=mailer is not None and self._mails < _MAILS_MAX,
        )
        notice = await asyncio.to_thread(claim)
        if notice is None:
            return None
        self._busy[notice.endpoint.id] = notice.endpoint.account_id
        address = notice.endpoint.mail_address
        if mailer is None or address is None:
            return partial(self._send, notice)
        self._mails += 1
        return partial(self._send_mail, mailer, notice, address)

    async def _send(self, notice: AccountNotice) -> None:
        message = WebhookMessage(notice.id, notice.body)
        try:
            attempt = await self._dependencies.attempts.send(message, notice.endpoint)
            is_sent = isinstance(attempt.outcome, Delivered)
            self._dependencies.metrics.count_account_notice(is_sent)
            await asyncio.to_thread(self._record_outcome, notice, attempt.outcome)
        finally:
            del self._busy[notice.endpoint.id]

    async def _send_mail(self, mailer: Mailer, notice: AccountNotice, address: str) -> None:
        try:
            result = await mailer.send(notice_mail(notice, address))
            self._dependencies.metrics.count_account_notice(result.is_accepted)
            await asyncio.to_thread(self._record_result, notice, result)
        finally:
            self._mails -= 1
            del self._busy[notice.endpoint.id]

    def _record_outcome(self, notice: AccountNotice, outcome: AttemptOutcome) -> None:
        if isinstance(outcome, Delivered):
            self._record_sent(notice)
            return
        reason = outcome.reason if isinstance(outcome, Rejected | Unreachable) else ""
        if isinstance(outcome, Rejected) and outcome.status == _GONE:
            self._disable(notice, reason)
        else:
            self._record_failure(notice, reason, pause_s(notice.attempt))

    def _record_result(self, notice: AccountNotice, result: MailResult) -> None:
        match result.verdict:
            case MailVerdict.ACCEPTED:
                self._record_sent(notice)
            case MailVerdict.NO_SUCH_ADDRESS:
                self._disable(notice, result.reply)
            case MailVerdict.REFUSED:
                self._record_failure(notice, result.reply, None)
            case MailVerdict.DEFERRED:
                self._record_failure(notice, result.reply, pause_s(notice.attempt))

    def _record_sent(self, notice: AccountNotice) -> None:
        self._dependencies.store.finish_account_notice(notice)
        _log.info("notice-sent", extra=_fields(notice))

    def _record_failure(self, notice: AccountNotice, reason: str, wait_s: float | None) -> None:
        self._dependencies.store.finish_account_notice(notice, reason, retry_in_s=wait_s)
        event = "notice-given-up" if wait_s is None else "notice-failed"
        _log.warning(event, extra={**_fields(notice), "reason": reason})

    def _disable(self, notice: AccountNotice, reason: str) -> None:
        store, endpoint = self._dependencies.store, notice.endpoint
        with suppress(NotFound):
            store.disable_notice_endpoint(endpoint.id, reason, at_url=endpoint.url)
        _log.warning("notice-endpoint-disabled", extra={**_fields(notice), "reason": reason})


def _fields(notice: AccountNotice) -> Mapping[str, object]:
    return {"notice": notice.id, "endpoint": notice.endpoint.id, "attempt": notice.attempt}
