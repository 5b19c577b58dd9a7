"""The delivery queue of one webhook on the live path: overflow, retries and webhook status.

An event stays in the queue from when it is read until it is settled, also between its attempts. If
the queue is full, events are skipped and left to replays, unless the receiver is fast: then the
partition is paused until there is room. So a slow receiver delays no other one, and a backlog is
delivered as fast as the receiver accepts it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from app.delivery.attempt import Attempt, WebhookMessage
from app.delivery.queue import DeliveryQueue
from app.domain.delivery import Delivered, LiveOutcome, Rejected, Unreachable
from app.domain.handovers import LiveHandover
from app.domain.live_backlog import LiveBacklog
from app.domain.model import Webhook, WebhookStatus
from app.domain.recovery import FAILING_REASON, ORDER_REASON, OutageRecord
from app.domain.retry import (
    GONE,
    RETRY_AFTER_S_MAX,
    GiveUp,
    is_permanent,
    retry_after_s,
)
from app.live.delivery import DeliveryPartition, LiveDelivery, backlog_of
from app.live.partition_pause import PartitionPause
from app.live.queue_context import QueueContext
from app.live.webhook_order import WebhookOrder
from app.live.webhook_outage import WebhookOutage
from app.live.webhook_status import OutageReporter

_QUEUE_FULL: Final = "too many events wait for this webhook"


class WebhookQueue:
    """The unsettled deliveries of one webhook. For one event loop."""

    def __init__(self, webhook_id: str, context: QueueContext) -> None:
        self.webhook_id = webhook_id
        self._context = context
        self._queue = DeliveryQueue[LiveDelivery](self._send, 1, context.start_task, self._may_send)
        self._pause = PartitionPause(webhook_id, context, self._leave_excess)
        self._retry_after_s = 0.0
        """The end of the wait that a Retry-After header requested, as `time.monotonic` counts."""
        self._outage = WebhookOutage(
            webhook_id, self._queue, context.recoveries, self._skip_for_recovery
        )
        self._order = WebhookOrder(
            webhook_id,
            self._queue,
            context.recoveries,
            self._enabled_webhook,
            lambda each: self._settle(each, LiveOutcome.SKIPPED, None, ORDER_REASON),
            self._continue_failing,
        )
        self._last_failure: Rejected | Unreachable | None = None
        self._failed_ms = 0
        self._is_disabling = False
        self._limits = context.new_limits(self._queue, self._start_sender)
        self._outages = OutageReporter(
            context.status_writer,
            disable_after_failures=context.disable_after_failures,
            disable_after_s=context.disable_after_s,
        )

    @property
    def is_forgettable(self) -> bool:
        """Whether it is idle and has no state worth keeping."""
        return (
            self._queue.is_idle
            and self._outages.is_healthy
            and not self._is_disabling
            and not self._outage.is_failing
            and self._order.is_forgettable
        )

    def add(self, delivery: LiveDelivery) -> None:
        """Add a delivery, or skip it if the queue is full and the receiver slow, or failing."""
        if delivery.partition.recoveries:
            self._outage.adopt(delivery.partition, self._enabled_webhook())
        if self._outage.is_failing and self._hold(delivery):
            return
        if self._order.begin_if_unknown(self._enabled_webhook()):
            self._add_waiting(delivery)
            return
        if self._context.exceeds_limits(self._queue, further=1):
            if not self._is_worth_pausing():
                self._add_excess(delivery)
                return
            self._pause.pause(delivery.partition)
        delay_s = self._context.delays.delays_s[0]
        self._add_to_queue(delivery, is_ready=not delay_s)
        if delay_s:
            self._requeue_after(delay_s, delivery)

    def _add_waiting(self, delivery: LiveDelivery) -> None:
        """Add a delivery that waits for earlier events, or leave all that wait to a replay."""
        is_excess, order = self._context.exceeds_limits(self._queue, further=1), self._order
        if is_excess and order.is_storing:
            self._record_skipped(delivery)
            return
        self._add_to_queue(delivery, is_ready=False)
        delivery.park()
        if is_excess and order.is_unknown:
            self._pause.pause(delivery.partition)
        elif not order.is_unknown and not self._context.has_room(self._queue):
            order.leave_to_replay()

    def _add_excess(self, delivery: LiveDelivery) -> None:
        """Skip a delivery that exceeds the limits; in strict order, leave all to a replay."""
        if self._leaves_to_replays():
            self._order.begin()
            self._add_waiting(delivery)
        else:
            self._record_skipped(delivery)

    def _leaves_to_replays(self) -> bool:
        webhook = self._enabled_webhook()
        leaves = webhook is not None and webhook.is_ordered and webhook.auto_recovery
        return leaves and not self._outage.is_failing

    def _continue_failing(self, record: OutageRecord) -> None:
        """Continue a stored outage, of which this process did not know."""
        held = next(iter(self._queue))
        self._outage.resume(held.partition, self._enabled_webhook(), record)

    def _add_to_queue(self, delivery: LiveDelivery, *, is_ready: bool) -> None:
        self._context.count_added(self.webhook_id, delivery)
        self._queue.add(delivery, is_ready=is_ready)

    def _hold(self, delivery: LiveDelivery) -> bool:
        """Skip or hold an event of a failing webhook; False if it is not failing any more."""
        webhook = self._enabled_webhook()
        if webhook is None or self._outage.is_outdated(webhook):
            is_ordered = webhook is not None and webhook.is_ordered
            self._outage.end(waits=is_ordered)
            if is_ordered:
                self._order.begin()
            return False
        if self._outage.may_skip(delivery):
            self._outages.count_missed_event()
            self._context.recorder.record_outcome(
                delivery, LiveOutcome.SKIPPED, None, FAILING_REASON
            )
        elif self._context.exceeds_limits(self._queue, further=1):
            self._record_skipped(delivery)
        else:
            self._add_to_queue(delivery, is_ready=False)
            self._outage.hold(delivery)
        return True

    def _skip_for_recovery(self, delivery: LiveDelivery) -> None:
        """Settle an event of the queue that the recovery replay will send."""
        self._outages.count_missed_event()
        self._settle(delivery, LiveOutcome.SKIPPED, None, FAILING_REASON)

    def withdraw(self, partition: DeliveryPartition) -> None:
        """Start no more attempts for a partition that is being revoked."""
        self._queue.withdraw(lambda each: each.partition is partition)

    def remove_partition(self, partition: DeliveryPartition) -> None:
        """Remove the deliveries of a partition that another process has."""
        self._count_removed(self._queue.remove_all(lambda each: each.partition is partition))
        self._outage.remove_partition(partition)
        if not len(self._queue):
            self._order.remove_partition()
        self._pause.forget(partition)

    def hand_over(self, handover: LiveHandover) -> bool:
        """Skip deliveries that a replay makes; whether none of them is in flight."""

        def is_idle(delivery: LiveDelivery) -> bool:
            return delivery.belongs_to(handover) and not delivery.is_in_flight

        self._queue.withdraw(is_idle)
        removed = self._queue.remove_all(is_idle)
        self._count_removed(removed)
        if self._outage.remove(removed):
            self._end_outage(lambda: None)
        for delivery in removed:
            self._record_handed_over(delivery, handover)
        if self._pause.is_paused and self._context.has_room(self._queue):
            self._pause.resume()
        return not self._queue.contains_any(lambda each: each.belongs_to(handover))

    def _record_handed_over(self, delivery: LiveDelivery, handover: LiveHandover) -> None:
        delivery.handover = handover
        self._context.recorder.record_outcome(delivery, LiveOutcome.SKIPPED, None, handover.reason)

    def backlog(self) -> LiveBacklog | None:
        """The unsettled events while some of them wait for a retry; None otherwise."""
        if (failure := self._last_failure) is None:
            return None
        return backlog_of(self._queue, failure, self._failed_ms, self._outages.is_healthy)

    def cancel_senders(self) -> None:
        """Cancel all sender tasks, also those in a request."""
        self._queue.stop()

    def _remove(self, delivery: LiveDelivery) -> None:
        self._queue.remove(delivery)
        self._count_removed((delivery,))

    def _count_removed(self, deliveries: Iterable[LiveDelivery]) -> None:
        for delivery in deliveries:
            self._context.bytes_waiting -= delivery.size_bytes
        if not len(self._queue):
            self._context.filled.discard(self.webhook_id)

    def _settle(
        self, delivery: LiveDelivery, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        self._remove(delivery)
        self._context.recorder.record_outcome(delivery, outcome, status, reason)
        if self._pause.is_paused and self._context.has_room(self._queue):
            self._pause.resume()

    def _record_skipped(self, delivery: LiveDelivery) -> None:
        self._context.recorder.record_outcome(delivery, LiveOutcome.SKIPPED, None, _QUEUE_FULL)

    def _is_worth_pausing(self) -> bool:
        fails = self._outages.has_outage or self._is_disabling
        return not fails and self._pause.is_worthwhile

    def _leave_excess(self) -> None:
        """Skip what exceeds the limits, of a receiver that is not fast."""
        if self._leaves_to_replays():
            self._order.begin()
            self._order.leave_to_replay()
            return
        queue = self._queue
        while self._context.exceeds_limits(queue) and (newest := queue.take_newest()):
            self._remove(newest)
            self._record_skipped(newest)

    def _requeue_after(self, delay_s: float, delivery: LiveDelivery) -> None:
        if delay_s:
            delivery.start_timer(delay_s, lambda: self._requeue(delivery))
        else:
            self._queue.requeue(delivery, in_front=False)

    def _requeue(self, delivery: LiveDelivery) -> None:
        """Put a delivery whose delay is over in front of the younger ones."""
        if delivery in self._queue and delivery.partition.is_assigned():
            self._queue.requeue(delivery)

    async def _may_send(self) -> bool:
        """Whether the webhook may be sent to; settles ready deliveries of a disabled one."""
        while self._queue.ready_count and not self._context.is_stopping:
            now_s = time.monotonic()
            wait_s = self._retry_after_s - now_s
            if wait_s > 0:
                asyncio.get_running_loop().call_later(wait_s, self._restart_senders)
                return False
            if (webhook := self._enabled_webhook()) is not None:
                if webhook.options is not self._limits.options:
                    self._limits.options = webhook.options
                return self._limits.may_start(now_s, self._queue.ready_count)
            await self._settle_if_disabled()
        return False

    def _start_sender(self) -> None:
        if not self._context.is_stopping:
            self._queue.start_senders(1)

    def _restart_senders(self) -> None:
        self._queue.start_senders(self._queue.ready_count)

    def _enabled_webhook(self) -> Webhook | None:
        webhook = self._context.table.webhook(self.webhook_id)
        is_enabled = webhook is not None and webhook.status is WebhookStatus.ENABLED
        return webhook if is_enabled and not self._is_disabling else None

    async def _settle_if_disabled(self) -> None:
        """Settle ready deliveries as not sent if a refreshed table has the webhook disabled."""
        await self._context.table.wait_until_refreshed()
        if self._enabled_webhook():
            return
        webhook = self._context.table.webhook(self.webhook_id)
        reason = "the webhook is deleted" if webhook is None else f"the webhook is {webhook.status}"
        if self._outage.is_failing:
            self._outage.end()
        for delivery in self._queue.take_ready():
            self._settle(delivery, LiveOutcome.DISABLED, None, reason)

    async def _send(self, delivery: LiveDelivery) -> None:
        """Make one attempt and record its outcome."""
        webhook = self._enabled_webhook()
        assert webhook is not None
        delivery.begin_request()
        attempt = await self._context.attempts.send(
            WebhookMessage(delivery.event_id, delivery.event.value),
            webhook,
            may_start=delivery.partition.is_assigned,
        )
        delivery.end_request()
        delivery.took_ms = 1_000 * attempt.duration_s
        self._limits.record_attempt(attempt, self._queue.senders_count)
        if delivery in self._queue:
            self._record_attempt(delivery, webhook, attempt)

    def _record_attempt(self, delivery: LiveDelivery, webhook: Webhook, attempt: Attempt) -> None:
        delivery.attempts += 1
        outcome, now_s = attempt.outcome, attempt.ended_s
        if type(outcome) is Delivered:
            self._pause.record_delivery(now_s)
            self._outage.reset_failures()
            self._outages.record_success(webhook)
            self._context.metrics.count_delivery(
                delivery.event.timestamp_ms, now_s - delivery.read_s
            )
            if self._outage.is_failing:
                self._recover(delivery, outcome)
            else:
                self._settle(delivery, LiveOutcome.DELIVERED, outcome.status, None)
        elif isinstance(outcome, Rejected | Unreachable):
            self._record_failure(delivery, webhook, outcome, now_s)

    def _record_failure(
        self,
        delivery: LiveDelivery,
        webhook: Webhook,
        outcome: Rejected | Unreachable,
        now_s: float,
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._outages.record_failure(webhook, now_ms)
        wait_s = retry_after_s(outcome, RETRY_AFTER_S_MAX)
        self._retry_after_s = max(self._retry_after_s, now_s + wait_s)
        if self._hold_in_outage(delivery, webhook, outcome, now_ms):
            self._context.recorder.record_failed_attempt(delivery, outcome, None)
            return
        context = self._context
        step = context.delays_of(webhook).after_failure(outcome, delivery.attempts)
        pause_s = context.pause_s(webhook, outcome, step)
        next_ms = None if pause_s is None else now_ms + round(1_000 * pause_s)
        context.recorder.record_failed_attempt(delivery, outcome, next_ms)
        if pause_s is None:
            self._fail(delivery, outcome, outcome.reason)
        elif handover := context.handovers.of(delivery):
            self._remove(delivery)
            self._record_handed_over(delivery, handover)
            return
        elif isinstance(step, GiveUp):
            fail = partial(self._fail, delivery, outcome)
            context.retries.add(delivery, pause_s, outcome.reason, fail)
            self._outage.record_scheduled_retry()
            if self._outage.has_one_failed_event:
                # It may have failed for itself: nothing is known of the receiver.
                return
        else:
            delivery.next_attempt_ms = now_ms + round(1_000 * pause_s)
            if webhook.is_ordered:
                # It stays the first, and the others wait for it.
                self._retry_after_s = max(self._retry_after_s, now_s + pause_s)
                self._queue.requeue(delivery)
            else:
                self._requeue_after(pause_s, delivery)
            self._record_last_failure(outcome, now_ms)
            return
        self._disable_if_needed(webhook, outcome, now_ms)

    def _fail(self, delivery: LiveDelivery, outcome: Rejected | Unreachable, reason: str) -> None:
        status = outcome.status if isinstance(outcome, Rejected) else None
        if delivery in self._queue:
            self._settle(delivery, LiveOutcome.FAILED, status, reason)

    def _hold_in_outage(
        self,
        delivery: LiveDelivery,
        webhook: Webhook,
        outcome: Rejected | Unreachable,
        now_ms: int,
    ) -> bool:
        """Hold a failed event in the outage, or begin one; False if it is not kept."""
        if is_permanent(outcome):
            self._outage.reset_failures()
            if self._outage.is_failing:
                # It processes requests. After a 410 the webhook is disabled.
                if isinstance(outcome, Rejected) and outcome.status == GONE:
                    self._outage.end()
                else:
                    self._end_outage(lambda: None)
            return False
        if self._order.is_waiting:
            delivery.park()
            return True
        self._outage.count_failure(delivery)
        if not self._outage.is_failing:
            context = self._context
            step = context.delays_of(webhook).after_failure(outcome, delivery.attempts)
            if not self._outage.begins_after(
                delivery,
                webhook,
                is_exhausted=isinstance(step, GiveUp),
                has_scheduled_retry=context.has_scheduled_retry(webhook),
            ):
                return False
            since_ms = self._outages.report_outage(webhook, now_ms)
            self._outage.begin(delivery.partition, webhook, since_ms)
        self._record_last_failure(outcome, now_ms)
        self._outage.record_failed_attempt(delivery, outcome, now_ms)
        # In strict order, others wait for the one that fails.
        if webhook.is_ordered or not self._outage.has_one_failed_event:
            self._disable_if_needed(webhook, outcome, now_ms)
        return True

    def _recover(self, delivery: LiveDelivery, outcome: Delivered) -> None:
        """Return to normal; `delivery`, which was accepted, is settled once that is stored.

        Otherwise no event might be left to probe with after a crash.
        """
        delivery.begin_request()

        def settle() -> None:
            delivery.end_request()
            if delivery in self._queue:
                self._settle(delivery, LiveOutcome.DELIVERED, outcome.status, None)

        self._end_outage(settle)

    def _end_outage(self, stored: Callable[[], None]) -> None:
        """End the outage, and call `stored`; in strict order, events wait for the replay."""
        webhook = self._enabled_webhook()
        waits = webhook is not None and webhook.is_ordered and self._outage.has_missed
        if waits:
            stored = self._order.begin_after(stored)
        self._outage.recover(stored, waits=waits)

    def _record_last_failure(self, outcome: Rejected | Unreachable, now_ms: int) -> None:
        self._last_failure, self._failed_ms = outcome, now_ms
        self._context.retrying.add(self)

    def _disable_if_needed(
        self, webhook: Webhook, outcome: Rejected | Unreachable, now_ms: int
    ) -> None:
        if not self._is_disabling:
            self._is_disabling = self._outages.record_failed_event(
                webhook, outcome, now_ms, self._finish_disabling
            )

    def _finish_disabling(self) -> None:
        """Rely on the webhook's status in the routing table again."""
        self._is_disabling = False
