"""What the queues of all webhooks of a live process share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from app.delivery.attempt import AttemptSender
from app.delivery.queue import DeliveryQueue, StartTask
from app.domain.delivery import LiveOutcome, Rejected, Unreachable
from app.domain.live_backlog import LiveBacklog
from app.domain.model import Webhook
from app.domain.retry import FixedDelays, GiveUp, RetryAfter
from app.live.delivery import DeliveryPartition, LiveDelivery
from app.live.handovers import Handovers
from app.live.limits import LiveLimits
from app.live.metrics import LiveMetrics
from app.live.recoveries import Recoveries
from app.live.routing import RoutingTable
from app.live.scheduled_retries import ScheduledRetries
from app.live.webhook_status import WebhookStatusWriter

QUEUE_BYTES_MAX: Final = 16 * 2**20
"""Bytes of waiting events of one webhook."""

SHARED_BYTES: Final = 64 * 2**20
"""Once all webhooks hold more bytes, each may hold an equal share of this: slow receivers leave
room for others. So all together hold at most twice as many."""


class OutcomeRecorder(Protocol):
    """Receives outcomes, and pauses and resumes partitions."""

    def record_outcome(
        self, delivery: LiveDelivery, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        """Record the outcome of a delivery."""

    def record_failed_attempt(
        self, delivery: LiveDelivery, failure: Rejected | Unreachable, next_ms: int | None
    ) -> None:
        """Record an attempt that failed just now; a retry is due at `next_ms`, if there is one."""

    def pause_partition(self, partition: DeliveryPartition, webhook_id: str) -> None:
        """Stop reading a partition for the sake of this webhook."""

    def resume_partition(self, partition: DeliveryPartition, webhook_id: str) -> None:
        """Read a partition again, unless it is paused for others."""


class RetryingQueue(Protocol):
    """A queue in which some event has failed."""

    webhook_id: str

    def backlog(self) -> LiveBacklog | None:
        """The unsettled events while some of them wait for a retry; None otherwise."""


@dataclass(slots=True)
class QueueContext:
    """What the queues of all webhooks share."""

    table: RoutingTable
    attempts: AttemptSender
    status_writer: WebhookStatusWriter
    metrics: LiveMetrics
    recorder: OutcomeRecorder
    handovers: Handovers
    recoveries: Recoveries
    retries: ScheduledRetries
    start_task: StartTask
    delays: FixedDelays
    in_flight_max: int
    queue_max: int
    disable_after_failures: int
    disable_after_s: float
    bytes_waiting: int = 0
    filled: set[str] = field(default_factory=set)
    """The webhooks with waiting events."""
    is_busy: bool = False
    is_stopping: bool = False
    retrying: set[RetryingQueue] = field(default_factory=set)
    """Queues in which some event has failed at least once."""

    def new_limits(
        self, queue: DeliveryQueue[LiveDelivery], start_sender: Callable[[], None]
    ) -> LiveLimits:
        """The limits of the webhook of a queue."""
        return LiveLimits(
            self.in_flight_max, queue.limit_in_flight, start_sender, self.attempts.is_crowded
        )

    def delays_of(self, webhook: Webhook) -> FixedDelays:
        """The delays before the live attempts of an event for a webhook."""
        live_s = self.retries.schedule.of_webhook(webhook).live_s
        return FixedDelays((self.delays.delays_s[0], *live_s))

    def has_scheduled_retry(self, webhook: Webhook) -> bool:
        """Whether events of a webhook are retried after their live attempts."""
        return bool(self.retries.schedule.of_webhook(webhook).scheduled_s)

    def pause_s(
        self, webhook: Webhook, outcome: Rejected | Unreachable, step: RetryAfter | GiveUp
    ) -> float | None:
        """The pause before the next attempt of an event, live or scheduled; None without one."""
        if isinstance(step, RetryAfter):
            return step.seconds
        return self.retries.pause_s(webhook, outcome)

    def count_added(self, webhook_id: str, delivery: LiveDelivery) -> None:
        """Count a delivery that is added to the queue of a webhook."""
        self.bytes_waiting += delivery.size_bytes
        self.filled.add(webhook_id)

    def exceeds_limits(self, queue: DeliveryQueue[LiveDelivery], *, further: int = 0) -> bool:
        """Whether a queue holds too much with `further` events; a single one is not too much."""
        events = len(queue) + further
        return events > 1 and (
            events > self.queue_max
            or queue.size_bytes > QUEUE_BYTES_MAX
            or self.exceeds_share(queue.size_bytes)
        )

    def has_room(self, queue: DeliveryQueue[LiveDelivery]) -> bool:
        """Whether a queue is at most half full."""
        return (
            len(queue) <= self.queue_max // 2
            and queue.size_bytes <= QUEUE_BYTES_MAX // 2
            and not self.exceeds_share(queue.size_bytes)
        )

    def exceeds_share(self, size_bytes: int) -> bool:
        """Whether all queues hold too many bytes, and one with `size_bytes` more than its share."""
        return self.bytes_waiting > SHARED_BYTES and size_bytes * len(self.filled) > SHARED_BYTES
