"""The automatic recovery of one webhook in a live process: what is held, probed and skipped.

While the webhook is failing, its queue holds the probe, requests in flight, and events whose
recovery is not stored yet. All other events are skipped.
"""

import random
import time
from collections.abc import Callable, Collection
from typing import Final

from app.delivery.queue import DeliveryQueue
from app.domain.delivery import Rejected, Unreachable
from app.domain.model import Webhook
from app.domain.recovery import (
    PROBES_PER_EVENT,
    ConsecutiveFailures,
    Recovery,
    RecoveryRecord,
    begins_recovery,
)
from app.live.delivery import DeliveryPartition, LiveDelivery
from app.live.recoveries import Recoveries
from app.live.webhook_order import release_parked

_UNKNOWN: Final = -1


class WebhookRecovery:
    """Whether a webhook is failing, and its probe. For one event loop.

    `skip` settles an event of the queue that the recovery replay will send.
    """

    def __init__(
        self,
        webhook_id: str,
        queue: DeliveryQueue[LiveDelivery],
        recoveries: Recoveries,
        skip: Callable[[LiveDelivery], None],
    ) -> None:
        self._webhook_id = webhook_id
        self._queue = queue
        self._recoveries = recoveries
        self._skip = skip
        self._recovery: Recovery | None = None
        self._partition: DeliveryPartition | None = None
        self._probe: LiveDelivery | None = None
        self._probe_failures = 0
        """Failed probes with this event."""
        self._failures = ConsecutiveFailures()
        self._validated_ms: int | None = _UNKNOWN
        self._is_ordered = False

    @property
    def has_missed(self) -> bool:
        """Whether events were skipped; only while failing."""
        assert self._recovery is not None
        return self._recovery.has_missed

    @property
    def is_failing(self) -> bool:
        """Whether events are held or skipped."""
        return self._recovery is not None

    @property
    def next_probe_ms(self) -> int:
        """When the next probe is due; only while failing."""
        assert self._recovery is not None
        return self._recovery.next_probe_ms

    def adopt(self, partition: DeliveryPartition, webhook: Webhook | None) -> None:
        """Continue the recovery that the process stored that had the partition before.

        In strict order the database is asked again: the recovery may have become due since.
        """
        record = partition.recoveries.pop(self._webhook_id, None)
        if webhook is not None and webhook.is_ordered:
            return
        if record is not None and self._recovery is None:
            self.resume(partition, webhook, record)

    def resume(
        self, partition: DeliveryPartition, webhook: Webhook | None, record: RecoveryRecord
    ) -> None:
        """Continue a stored recovery, with the oldest event that is held as the probe."""
        recovery = self._recovery = Recovery.resume(self._recoveries.policy, record)
        self._start(partition, webhook)
        self._choose_probe()
        self._skip_covered(recovery)
        if self._widen(recovery):
            self._save(recovery)

    @property
    def has_one_failed_event(self) -> bool:
        """Whether all failures since the last accepted event are of one event."""
        return self._failures.is_of_one_event

    def count_failure(self, delivery: LiveDelivery) -> None:
        """Count a retryable failure."""
        self._failures.record(delivery.digest, delivery.event.timestamp_ms)

    def record_scheduled_retry(self) -> None:
        """A failed event leaves the queue for its scheduled retry."""
        self._failures.has_scheduled = True

    def reset_failures(self) -> None:
        """The receiver accepted an event, or rejected one for good."""
        if self._failures.count:
            self._failures = ConsecutiveFailures()

    def begins_after(
        self,
        delivery: LiveDelivery,
        webhook: Webhook,
        *,
        is_exhausted: bool,
        has_scheduled_retry: bool,
    ) -> bool:
        """Whether the webhook is failing after a counted failure, see `begins_recovery`."""
        return webhook.auto_recovery and begins_recovery(
            self._failures,
            delivery.attempts,
            is_exhausted=is_exhausted,
            has_scheduled_retry=has_scheduled_retry,
            is_ordered=webhook.is_ordered,
        )

    def begin(self, partition: DeliveryPartition, webhook: Webhook, since_ms: int) -> None:
        """Hold all events of the queue, and skip them once that is stored.

        The recovery replay also sends the failed events that wait for a scheduled retry.
        """
        held = tuple(self._queue)
        earliest_ms = min(each.event.timestamp_ms for each in held)
        if self._failures.has_scheduled:
            earliest_ms = min(earliest_ms, self._failures.earliest_ms)
        recovery = Recovery.begin(self._recoveries.policy, since_ms, earliest_ms)
        recovery.has_missed = self._failures.has_scheduled
        self._widen(recovery)
        self._recovery = recovery
        self._start(partition, webhook)
        for _ in self._queue.take_ready():
            pass
        for each in held:
            if not each.is_in_flight:
                each.park()
        self._choose_probe()

    def _widen(self, recovery: Recovery) -> bool:
        """Extend the window to store by all events of the queue; whether it did."""
        now_ms = _now_ms()
        widened = [recovery.widen(each.event.timestamp_ms, now_ms) for each in self._queue]
        return any(widened)

    def _start(self, partition: DeliveryPartition, webhook: Webhook | None) -> None:
        self._partition = partition
        self._validated_ms = None if webhook is None else webhook.validated_ms
        self._is_ordered = webhook is not None and webhook.is_ordered

    def is_outdated(self, webhook: Webhook) -> bool:
        """Whether the receiver was verified since: the webhook was enabled, or has another URL."""
        return webhook.validated_ms != self._validated_ms

    def may_skip(self, delivery: LiveDelivery) -> bool:
        """Whether a new event need not be held."""
        assert self._recovery is not None
        if self._probe is None or self._is_probe_used_up():
            return False
        if not self._recovery.is_covered(delivery.event.timestamp_ms, _now_ms()):
            return False
        self._recovery.has_missed = True
        return True

    def hold(self, delivery: LiveDelivery) -> None:
        """Hold a new event of the queue: as the probe, or until its recovery is stored."""
        recovery = self._recovery
        assert recovery is not None
        delivery.park()
        if recovery.widen(delivery.event.timestamp_ms, _now_ms()):
            self._save(recovery)
        if self._probe is None or self._is_probe_used_up():
            self._set_probe(delivery)
            self._skip_covered(recovery)

    def record_failed_attempt(
        self, delivery: LiveDelivery, outcome: Rejected | Unreachable, now_ms: int
    ) -> None:
        """A retryable failure: of the probe, or of a request that was sent before it."""
        recovery = self._recovery
        assert recovery is not None
        delivery.park()
        if delivery is self._probe or self._probe is None or not recovery.failed_probes:
            jitter = random.random()  # noqa: S311  spreads load, guards nothing
            recovery.record_failed_probe(outcome, now_ms, jitter)
            self._probe_failures += 1
            self._set_probe(self._probe or delivery)
            self._save(recovery)
        else:
            self._skip_covered(recovery)

    def recover(self, stored: Callable[[], None], *, waits: bool) -> None:
        """End it: the receiver accepts events. `stored` is called once that is stored.

        Held events are queued again, unless `waits`.
        """
        recovery = self._recovery
        assert recovery is not None
        self._recoveries.finish(self._webhook_id, recovery, stored)
        self.end(waits=waits)

    def end(self, *, waits: bool = False) -> None:
        """Queue events again; the stored recovery stays, for the webhook's next activation."""
        self._clear()
        if not waits:
            release_parked(self._queue)

    def remove_partition(self, partition: DeliveryPartition) -> None:
        """Forget a recovery that another process continues."""
        if self._partition is partition:
            self._clear()

    def remove(self, deliveries: Collection[LiveDelivery]) -> bool:
        """Replace the probe if it is one of `deliveries`, which have left the queue.

        Whether it cannot be replaced: another event would overtake those that were skipped.
        """
        if self._probe not in deliveries:
            return False
        self._probe = None
        if self._is_ordered and self.has_missed:
            return True
        self._choose_probe()
        return False

    def _clear(self) -> None:
        self._recovery = self._partition = self._probe = None

    def _is_probe_used_up(self) -> bool:
        probe = self._probe
        if probe is None or self._is_ordered:
            return False
        return probe.is_parked and self._probe_failures >= PROBES_PER_EVENT

    def _choose_probe(self) -> None:
        """Probe with the oldest event, if there is one."""
        held = [each for each in self._queue if each.is_parked]
        if held:
            self._set_probe(min(held, key=lambda each: each.event.offset))

    def _set_probe(self, delivery: LiveDelivery) -> None:
        """Send `delivery` when the next probe is due."""
        recovery = self._recovery
        assert recovery is not None
        if delivery is not self._probe:
            self._probe, self._probe_failures = delivery, 0
        delivery.next_attempt_ms = recovery.next_probe_ms
        wait_s = max(0, recovery.next_probe_ms - _now_ms()) / 1_000
        delivery.start_timer(wait_s, lambda: self._send_probe(recovery, delivery))

    def _send_probe(self, recovery: Recovery, delivery: LiveDelivery) -> None:
        is_current = self._recovery is recovery and self._probe is delivery
        if is_current and delivery.is_parked and delivery in self._queue:
            delivery.is_parked = False
            self._queue.requeue(delivery)

    def _save(self, recovery: Recovery) -> None:
        self._recoveries.save(self._webhook_id, recovery, lambda: self._skip_covered(recovery))

    def _skip_covered(self, recovery: Recovery) -> None:
        """Skip all held events that the stored recovery has, except the probe."""
        if self._recovery is not recovery:
            return
        now_ms = _now_ms()
        for each in tuple(self._queue):
            if (
                each.is_parked
                and each is not self._probe
                and recovery.is_covered(each.event.timestamp_ms, now_ms)
            ):
                recovery.has_missed = True
                self._skip(each)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
