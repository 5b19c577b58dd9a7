"""Tells the store how webhooks fare: since when one fails, and that one is to be disabled."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from app.audit_log import record_change
from app.domain.model import Webhook, WebhookStatus
from app.live.metrics import LiveMetrics
from app.live.routing import RoutingTable
from app.store import NotFound, Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class Standing:
    """Keeps what is to be told until the store has taken it; only the last word counts.

    It is told once for each run of failures, not for each failure.
    """

    def __init__(self, store: Store, table: RoutingTable, metrics: LiveMetrics) -> None:
        self._store = store
        self._table = table
        self._metrics = metrics
        self._changes: dict[str, Callable[[], None]] = {}
        self._is_any = asyncio.Event()

    def note_failing(self, webhook_id: str, since_ms: int | None) -> None:
        """Store since when the receiver takes nothing; None once it takes again."""
        self._tell(webhook_id, lambda: self._store.record_failing_since(webhook_id, since_ms))

    def disable(self, webhook: Webhook, reason: str, done: Callable[[], None]) -> None:
        """Disable a webhook that is still at its URL; `done` is called on the loop afterwards."""
        loop = asyncio.get_running_loop()

        def disable() -> None:
            disabled = self._store.disable_webhook(webhook.id, reason, at_url=webhook.url)
            loop.call_soon_threadsafe(self._disabled, disabled, reason, done)

        self._tell(webhook.id, disable)

    async def run(self) -> None:
        """Tell the store until cancelled."""
        while True:
            await self._is_any.wait()
            self._is_any.clear()
            changes, self._changes = self._changes, {}
            for webhook_id, change in changes.items():
                await self._make(webhook_id, change)

    def _tell(self, webhook_id: str, change: Callable[[], None]) -> None:
        self._changes[webhook_id] = change
        self._is_any.set()

    async def _make(self, webhook_id: str, change: Callable[[], None]) -> None:
        while True:
            try:
                await asyncio.to_thread(change)
            except StoreUnavailable as error:
                _log.warning(
                    "standing-not-stored-yet", extra={"webhook": webhook_id, "reason": str(error)}
                )
                await asyncio.sleep(_RETRY_S)
            except NotFound:
                return  # it was deleted meanwhile
            else:
                return

    def _disabled(self, webhook: Webhook, reason: str, done: Callable[[], None]) -> None:
        self._table.learn(webhook)
        # At another URL by now, it has nothing to do with what this receiver said.
        if webhook.status is WebhookStatus.DISABLED:
            self._note_disabled(webhook, reason)
        done()

    def _note_disabled(self, webhook: Webhook, reason: str) -> None:
        self._metrics.disabled_webhooks.inc()
        record_change("disableWebhook", webhook.id, account_id=webhook.account_id, reason=reason)
