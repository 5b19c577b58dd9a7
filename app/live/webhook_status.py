"""Stores since when a webhook is failing, and disables it when the failures last."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from app.audit_log import record_change
from app.domain.delivery import Rejected, Unreachable
from app.domain.endpoint_health import EndpointHealth
from app.domain.model import Webhook, WebhookStatus
from app.domain.retry import GONE
from app.domain.windows import format_time
from app.live.metrics import LiveMetrics
from app.live.routing import RoutingTable
from app.store import NotFound, Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class WebhookStatusWriter:
    """Writes webhook status to the store; of several changes of a webhook, only the last."""

    def __init__(self, store: Store, table: RoutingTable, metrics: LiveMetrics) -> None:
        self._store = store
        self._table = table
        self._metrics = metrics
        self._changes: dict[str, Callable[[], None]] = {}
        self._has_changes = asyncio.Event()

    def store_failing_since(self, webhook_id: str, since_ms: int | None) -> None:
        """Store since when the receiver is failing; None once it has recovered."""
        self._add(webhook_id, lambda: self._store.record_failing_since(webhook_id, since_ms))

    def disable(self, webhook: Webhook, reason: str, done: Callable[[], None]) -> None:
        """Disable a webhook unless its URL has changed; `done` is called on the event loop."""
        loop = asyncio.get_running_loop()

        def disable() -> None:
            disabled = self._store.disable_webhook(webhook.id, reason, at_url=webhook.url)
            loop.call_soon_threadsafe(self._finish_disabling, disabled, reason, done)

        self._add(webhook.id, disable)

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            changes, self._changes = self._changes, {}
            for webhook_id, change in changes.items():
                await self._write(webhook_id, change)

    def _add(self, webhook_id: str, change: Callable[[], None]) -> None:
        self._changes[webhook_id] = change
        self._has_changes.set()

    async def _write(self, webhook_id: str, change: Callable[[], None]) -> None:
        while True:
            try:
                await asyncio.to_thread(change)
            except StoreUnavailable as error:
                _log.warning(
                    "webhook-status-not-stored", extra={"webhook": webhook_id, "reason": str(error)}
                )
                await asyncio.sleep(_RETRY_S)
            except NotFound:
                return  # deleted in the meantime
            else:
                return

    def _finish_disabling(self, webhook: Webhook, reason: str, done: Callable[[], None]) -> None:
        self._table.put_webhook(webhook)
        # With a new URL it stays enabled: another receiver has failed.
        if webhook.status is WebhookStatus.DISABLED:
            self._metrics.disabled_webhooks.inc()
            record_change(
                "disableWebhook", webhook.id, account_id=webhook.account_id, reason=reason
            )
        done()


class OutageReporter:
    """Reports outages of one endpoint to the store. Times are milliseconds since 1970.

    It reports the start of an outage once, and its end, so that the duration survives a restart of
    this process. The number of failed events does not.
    """

    def __init__(
        self,
        status_writer: WebhookStatusWriter,
        *,
        disable_after_failures: int,
        disable_after_s: float,
    ) -> None:
        self._status_writer = status_writer
        self._disable_after_failures = disable_after_failures
        self._disable_after_ms = disable_after_s * 1_000
        self._health = EndpointHealth()
        self._since_ms: int | None = None
        self._is_reported: bool | None = None
        """Whether the store has the webhook as failing; None before the first attempt."""

    @property
    def is_healthy(self) -> bool:
        """Whether the last attempt succeeded, or there was none."""
        return not self._health.consecutive_failures

    @property
    def has_outage(self) -> bool:
        """Whether so many attempts failed that nothing should wait for this receiver."""
        return self._health.has_outage

    def record_success(self, webhook: Webhook) -> None:
        """The receiver accepted an event."""
        if self._is_reported is None:
            self._is_reported = webhook.failing_since_ms is not None
        self._health.record_success()
        self._since_ms = None
        if self._is_reported:
            self._status_writer.store_failing_since(webhook.id, None)
            self._is_reported = False

    def record_failure(self, webhook: Webhook, now_ms: int) -> None:
        """An attempt failed."""
        self._health.record_failed_attempt()
        if self._since_ms is None:
            self._since_ms = webhook.failing_since_ms or now_ms
        if self._health.has_outage:
            self._report(webhook)

    def record_failed_event(
        self,
        webhook: Webhook,
        outcome: Rejected | Unreachable,
        now_ms: int,
        disabled: Callable[[], None],
    ) -> bool:
        """The live attempts of an event failed. Returns whether the webhook is being disabled.

        Until that is done, nothing must be sent. `disabled` is called then.
        """
        if isinstance(outcome, Rejected) and outcome.status == GONE:
            # Standard Webhooks: a receiver that answers 410 must not be sent anything again.
            why = f"the receiver wants no more events: {outcome.reason}"
            self._status_writer.disable(webhook, why, disabled)
            return True
        self._health.record_failed_events(1)
        self._report(webhook)
        since_ms = self._since_ms or now_ms
        if self._health.failed_events < self._disable_after_failures:
            return False
        if now_ms - since_ms < self._disable_after_ms:
            return False
        why = (
            f"stopped after {self._health.failed_events:,} consecutive failures since "
            f"{format_time(since_ms)}, the last one: {outcome.reason}"
        )
        self._status_writer.disable(webhook, why, disabled)
        return True

    def count_missed_event(self) -> None:
        """An event was skipped because the receiver is failing."""
        self._health.record_failed_events(1)

    def report_outage(self, webhook: Webhook, now_ms: int) -> int:
        """Store that the receiver is failing, and return since when."""
        self._report(webhook)
        return self._since_ms or now_ms

    def _report(self, webhook: Webhook) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._status_writer.store_failing_since(webhook.id, self._since_ms)
