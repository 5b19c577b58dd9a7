"""Proofs of ownership, and trials, asked of receivers while their owners wait for the answer."""

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Final

from starlette.concurrency import run_in_threadpool

from app.api.places import Places
from app.api.problems import NOT_VALIDATED, RATE_LIMITED, Problem
from app.api.quotas import Quotas
from app.domain.accounts import ApiKey
from app.domain.model import Webhook
from app.store import Store
from app.webhooks.endpoint_test import EndpointTest, send_test_event
from app.webhooks.sender import WebhookSender
from app.webhooks.verification import VerificationFailed, Verified, verify_receiver

PROOFS_MAX: Final = 32
"""Proofs under way at a time; a receiver that hangs holds its place until the timeout."""

PROOFS_PER_ACCOUNT_MAX: Final = 4
"""Of them, those of one developer: receivers of theirs that hang must not hold up the others'."""

PROOFS_PER_MINUTE_MAX: Final = 60
"""Those of one developer's account: by then an owner has long mended the receiver. Without a bound,
anybody with a key could have us knock at a stranger's door as often as a key may ask."""

_ACCOUNTS_MAX: Final = 10_000


class Proofs:
    """Runs proofs and trials, so many at a time, and stores what came of proofs."""

    def __init__(self, sender: WebhookSender, store: Store) -> None:
        self._sender = sender
        self._store = store
        self._places = asyncio.Semaphore(PROOFS_MAX)
        self._minutes = Quotas(_ACCOUNTS_MAX)
        taken = "of your receivers are being asked already"
        self._places_of_accounts = Places(PROOFS_PER_ACCOUNT_MAX, taken)

    def place(self, caller: ApiKey) -> AbstractContextManager[None]:
        """A place for a proof or a trial that `caller` asks for; see `Places.place`.

        Raises:
            Problem: a developer has asked for too many in a minute.
        """
        if caller.sees is not None:
            now_s = time.monotonic()
            standing = self._minutes.take(caller.account.id, PROOFS_PER_MINUTE_MAX, now_s)
            if standing.is_exceeded:
                detail = f"receivers are asked {PROOFS_PER_MINUTE_MAX} times a minute at most"
                after = {"retry-after": str(standing.reset_s)}
                raise Problem(RATE_LIMITED, detail, headers=after)
        return self._places_of_accounts.place(caller)

    async def prove(
        self, webhook: Webhook, url: str | None = None
    ) -> Verified | VerificationFailed:
        """Ask the receiver at `url`, which is the webhook's own without one; changes nothing."""
        async with self._places:
            return await verify_receiver(self._sender, webhook, url or webhook.url)

    async def try_out(self, webhook: Webhook) -> EndpointTest:
        """Send a test to the webhook's receiver, whatever its status; changes nothing."""
        async with self._places:
            return await send_test_event(self._sender, webhook)

    async def require(self, webhook: Webhook) -> None:
        """Return when the receiver proved itself; else the reason is stored, unless ENABLED.

        Raises:
            Problem: it did not.
        """
        proof = await self.prove(webhook)
        if isinstance(proof, VerificationFailed):
            await self._refuse(webhook, proof.reason)
            raise Problem(NOT_VALIDATED, proof.reason)

    async def settle(self, webhook: Webhook) -> Webhook:
        """The webhook after a proof: ENABLED, or as it was and with the reason."""
        match await self.prove(webhook):
            case Verified():
                return await run_in_threadpool(self._store.enable_webhook, webhook.id, webhook.url)
            case VerificationFailed(reason):
                return await self._refuse(webhook, reason)

    async def _refuse(self, webhook: Webhook, reason: str) -> Webhook:
        return await run_in_threadpool(
            self._store.record_failed_verification, webhook.id, webhook.url, reason
        )
