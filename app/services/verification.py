"""Verification of receivers, and test deliveries, while the caller waits."""

import asyncio
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Final

from anyio import to_thread

from app.domain.accounts import ApiKey
from app.domain.model import Webhook
from app.domain.receivers import Receiver
from app.services.errors import RateLimited, ReceiverNotVerified
from app.services.limits import AccountSlots, QuotaCounter
from app.store import Store
from app.webhooks.endpoint_test import EndpointTest, send_test_event
from app.webhooks.sender import WebhookSender
from app.webhooks.verification import VerificationFailed, Verified, verify_receiver

VERIFICATIONS_MAX: Final = 32
"""Concurrent verifications; a receiver that hangs occupies one until the timeout."""

VERIFICATIONS_PER_ACCOUNT_MAX: Final = 4
"""Concurrent verifications of a developer, so that its hanging receivers do not block others."""

VERIFICATIONS_PER_MINUTE_MAX: Final = 60
"""Per developer's account. Without a limit, any API key could make this service flood an address
with requests."""


class Verifier:
    """Sends verification requests and test deliveries, and stores the verification's outcome."""

    def __init__(self, sender: WebhookSender, store: Store) -> None:
        self._sender = sender
        self._store = store
        self._concurrent = asyncio.Semaphore(VERIFICATIONS_MAX)
        self._rates = QuotaCounter()
        self._slots = AccountSlots(VERIFICATIONS_PER_ACCOUNT_MAX, "verifications")

    def slot(self, caller: ApiKey) -> AbstractContextManager[None]:
        """A slot for the caller's verification or test; see `AccountSlots.slot`.

        Raises:
            RateLimited: a developer's account requested too many in a minute.
        """
        if caller.account_filter is not None:
            quota = self._rates.count_request(
                caller.account.id, VERIFICATIONS_PER_MINUTE_MAX, time.monotonic()
            )
            if quota.is_exceeded:
                detail = f"limit: {VERIFICATIONS_PER_MINUTE_MAX} verifications per minute"
                raise RateLimited(detail, retry_after_s=quota.reset_s)
        return self._slots.slot(caller)

    async def verify(
        self, webhook: Receiver, url: str | None = None
    ) -> Verified | VerificationFailed:
        """Verify the receiver at `url`, by default the webhook's; stores nothing."""
        async with self._concurrent:
            return await verify_receiver(self._sender, webhook, url or webhook.url)

    async def send_test(
        self, webhook: Receiver, caller: ApiKey, *, is_verified: bool
    ) -> EndpointTest:
        """Send a test event to the webhook's receiver, whatever its status; stores nothing.

        A developer sees the response only of a receiver that has passed the verification: another
        one may be a server that the developer must not read.
        """
        async with self._concurrent:
            trial = await send_test_event(self._sender, webhook)
        may_read = is_verified or caller.account_filter is None
        return trial if may_read else replace(trial, response=None)

    async def verify_and_enable(self, webhook: Webhook) -> Webhook:
        """Verify the receiver, and store the outcome: ENABLED, or why not.

        An enabled webhook stays ENABLED.
        """
        match await self.verify(webhook):
            case Verified():
                return await self.enable(webhook)
            case VerificationFailed(reason):
                return await self._store_failure(webhook, reason)

    async def require(self, webhook: Webhook) -> None:
        """Verify the receiver; store the reason of a failure, unless the webhook is ENABLED.

        Raises:
            ReceiverNotVerified: the receiver did not pass.
        """
        outcome = await self.verify(webhook)
        if isinstance(outcome, VerificationFailed):
            await self._store_failure(webhook, outcome.reason)
            raise ReceiverNotVerified(outcome.reason)

    async def enable(self, webhook: Webhook) -> Webhook:
        """Enable a webhook whose receiver passed, unless its URL has changed since."""
        return await to_thread.run_sync(
            partial(self._store.enable_webhook, webhook.id, webhook.url)
        )

    async def _store_failure(self, webhook: Webhook, reason: str) -> Webhook:
        return await to_thread.run_sync(
            partial(self._store.record_failed_verification, webhook.id, webhook.url, reason)
        )
