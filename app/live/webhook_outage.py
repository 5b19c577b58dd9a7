"""The outage of one webhook in a live process: what is held, probed and skipped.

While the webhook is failing, its queue holds the probe, requests in flight, and events whose
outage is not stored yet. All other events are skipped.
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
    Outage,
    OutageRecord,
    begins_outage,
)
from app.live.delivery import DeliveryPartition, LiveDelivery
from app.live.recoveries import Recoveries
from app.live.webhook_order import release_parked

_UNKNOWN: Final = -1


class WebhookOutage:
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
        self._outage: Outage | None = None
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
        assert self._outage is not None
        return self._outage.has_missed

    @property
    def is_failing(self) -> bool:
        """Whether events are held or skipped."""
        return self._outage is not None

    @property
    def next_probe_ms(self) -> int:
        """When the next probe is due; only while failing."""
        assert self._outage is not None
        return self._outage.next_probe_ms

    def adopt(self, partition: DeliveryPartition, webhook: Webhook | None) -> None:
        """Continue the outage that the process stored that had the partition before.

        In strict order the database is asked again: its recovery may have become due since.
        """
        record = partition.recoveries.pop(self._webhook_id, None)
        if webhook is not None and webhook.is_ordered:
            return
        if record is not None and self._outage is None:
            self.resume(partition, webhook, record)

    def resume(
        self, partition: DeliveryPartition, webhook: Webhook | None, record: OutageRecord
    ) -> None:
        """Continue a stored outage, with the oldest event that is held as the probe."""
        outage = self._outage = Outage.resume(self._recoveries.policy, record)
        self._start(partition, webhook)
        self._choose_probe()
        self._skip_covered(outage)
        if self._widen(outage):
            self._save(outage)

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
        """Whether the webhook is failing after a counted failure, see `begins_outage`."""
        return webhook.auto_recovery and begins_outage(
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
        outage = Outage.begin(self._recoveries.policy, since_ms, earliest_ms)
        outage.has_missed = self._failures.has_scheduled
        self._widen(outage)
        self._outage = outage
        self._start(partition, webhook)
        for _ in self._queue.take_ready():
            pass
        for each in held:
            if not each.is_in_flight:
                each.park()
        self._choose_probe()

    def _widen(self, outage: Outage) -> bool:
        """Extend the window to store by all events of the queue; whether it did."""
        now_ms = _now_ms()
        widened = [outage.widen(each.event.timestamp_ms, now_ms) for each in self._queue]
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
        assert self._outage is not None
        if self._probe is None or self._is_probe_used_up():
            return False
        if not self._outage.is_covered(delivery.event.timestamp_ms, _now_ms()):
            return False
        self._outage.has_missed = True
        return True

    def hold(self, delivery: LiveDelivery) -> None:
        """Hold a new event of the queue: as the probe, or until the outage is stored."""
        outage = self._outage
        assert outage is not None
        delivery.park()
        if outage.widen(delivery.event.timestamp_ms, _now_ms()):
            self._save(outage)
        if self._probe is None or self._is_probe_used_up():
            self._set_probe(delivery)
            self._skip_covered(outage)

    def record_failed_attempt(
        self, delivery: LiveDelivery, outcome: Rejected | Unreachable, now_ms: int
    ) -> None:
        """A retryable failure: of the probe, or of a request that was sent before it."""
        outage = self._outage
        assert outage is not None
        delivery.park()
        if delivery is self._probe or self._probe is None or not outage.failed_probes:
            jitter = random.random()  # noqa: S311  spreads load, guards nothing
            outage.record_failed_probe(outcome, now_ms, jitter)
            self._probe_failures += 1
            self._set_probe(self._probe or delivery)
            self._save(outage)
        else:
            self._skip_covered(outage)

    def recover(self, stored: Callable[[], None], *, waits: bool) -> None:
        """End it: the receiver accepts events. `stored` is called once that is stored.

        Held events are queued again, unless `waits`.
        """
        outage = self._outage
        assert outage is not None
        self._recoveries.finish(self._webhook_id, outage, stored)
        self.end(waits=waits)

    def end(self, *, waits: bool = False) -> None:
        """Queue events again; the stored outage stays, for the webhook's next activation."""
        self._clear()
        if not waits:
            release_parked(self._queue)

    def remove_partition(self, partition: DeliveryPartition) -> None:
        """Forget an outage that another process continues."""
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
        self._outage = self._partition = self._probe = None

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
        outage = self._outage
        assert outage is not None
        if delivery is not self._probe:
            self._probe, self._probe_failures = delivery, 0
        delivery.next_attempt_ms = outage.next_probe_ms
        wait_s = max(0, outage.next_probe_ms - _now_ms()) / 1_000
        delivery.start_timer(wait_s, lambda: self._send_probe(outage, delivery))

    def _send_probe(self, outage: Outage, delivery: LiveDelivery) -> None:
        is_current = self._outage is outage and self._probe is delivery
        if is_current and delivery.is_parked and delivery in self._queue:
            delivery.is_parked = False
            self._queue.requeue(delivery)

    def _save(self, outage: Outage) -> None:
        self._recoveries.save(self._webhook_id, outage, lambda: self._skip_covered(outage))

    def _skip_covered(self, outage: Outage) -> None:
        """Skip all held events that the stored outage has, except the probe."""
        if self._outage is not outage:
            return
        now_ms = _now_ms()
        for each in tuple(self._queue):
            if (
                each.is_parked
                and each is not self._probe
                and outage.is_covered(each.event.timestamp_ms, now_ms)
            ):
                outage.has_missed = True
                self._skip(each)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
