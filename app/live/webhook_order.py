"""Strict order of a webhook: its events wait while a recovery replay sends earlier ones.

LIVE ──retries fail──> FAILING, see `webhook_outage` ──the probe is accepted──┐
 ^ │                                                                            v
 │ └─────more events than the queue holds; not known yet what is stored───> WAITING
 └─────────────no recovery of the webhook is due or active─────────────────────┘

LIVE, one request at a time is in flight. WAITING events are held. An active recovery takes over
those that are in its range of the log; the others are younger, and sent when it has ended. If too
many wait, a further recovery is stored, and they are skipped, for it to send. So the database knows
what any process must know, and the number of held events is bounded.
"""

import time
from collections.abc import Callable
from typing import Final

from app.delivery.queue import DeliveryQueue
from app.domain.model import Webhook
from app.domain.recovery import Outage, OutageRecord
from app.live.delivery import LiveDelivery
from app.live.recoveries import Recoveries

_UNKNOWN: Final = -1


class WebhookOrder:
    """Whether the events of one webhook wait, and for what. For one event loop.

    `find_webhook` returns the webhook if it is ENABLED. `skip` settles an event of the queue that a
    recovery replay will send. `continue_failing` is called with a stored recovery that no process
    continues.
    """

    def __init__(
        self,
        webhook_id: str,
        queue: DeliveryQueue[LiveDelivery],
        recoveries: Recoveries,
        find_webhook: Callable[[], Webhook | None],
        skip: Callable[[LiveDelivery], None],
        continue_failing: Callable[[OutageRecord], None],
    ) -> None:
        self._webhook_id = webhook_id
        self._queue = queue
        self._recoveries = recoveries
        self._find_webhook = find_webhook
        self._skip = skip
        self._continue_failing = continue_failing
        self.is_waiting = False
        self.is_unknown = False
        """Whether the webhook may be failing, because the database has not been asked yet."""
        self._is_storing = False
        self._validated_ms: int | None = _UNKNOWN
        """When the receiver was verified, as of the last look into the database."""

    @property
    def is_storing(self) -> bool:
        """Whether a recovery is being stored."""
        return self._is_storing

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing waits, for events or for the database."""
        return not self.is_waiting and not self._is_storing

    def begin_if_unknown(self, webhook: Webhook | None) -> bool:
        """Whether a new event waits; `webhook` is None unless it is ENABLED.

        Enabling a webhook makes its recovery due, so the database is asked again after that.
        """
        if webhook is None:
            return self.is_waiting
        if not webhook.is_ordered:
            self.forget()
        elif webhook.validated_ms != self._validated_ms:
            self._validated_ms = webhook.validated_ms
            self.is_unknown = True
            self.begin()
        return self.is_waiting

    def begin(self) -> None:
        """Let all events wait until no recovery is due or active."""
        self.is_waiting = True
        for _ in self._queue.take_ready():
            pass
        for each in self._queue:
            if not each.is_in_flight:
                each.park()
        self._recoveries.watch(self._webhook_id, self._check)

    def begin_after(self, stored: Callable[[], None]) -> Callable[[], None]:
        """Wait for a recovery that is about to be stored; the function to call after that.

        `stored` is called by it.
        """
        self.begin()
        self._is_storing = True

        def finish() -> None:
            self._is_storing = False
            stored()

        return finish

    def leave_to_replay(self) -> None:
        """Store a recovery of the waiting events, and skip them after that."""
        held = [each for each in self._queue if each.is_parked]
        if self._is_storing or not held:
            return
        times_ms = [each.event.timestamp_ms for each in held]
        now_ms = time.time_ns() // 1_000_000
        missed = Outage.begin(self._recoveries.policy, now_ms, min(times_ms))
        missed.widen(max(times_ms), now_ms)
        missed.has_missed = True

        def skip() -> None:
            for each in held:
                if each.is_parked and each in self._queue:
                    self._skip(each)

        self._recoveries.finish(self._webhook_id, missed, self.begin_after(skip))

    def forget(self) -> None:
        """Send waiting events, the oldest first; ask the database before others are sent."""
        self._validated_ms = _UNKNOWN
        if self.is_waiting:
            self._end()

    def remove_partition(self) -> None:
        """Ask the database again: another process has had the partition."""
        self._validated_ms = _UNKNOWN
        self.is_waiting = False
        self._recoveries.unwatch(self._webhook_id)

    def _check(self, *, is_behind: bool, record: OutageRecord | None) -> None:
        """End the wait if no recovery is due or active; `record` is that of a failing webhook."""
        self.is_unknown = False
        webhook = self._find_webhook()
        if webhook is None or not webhook.is_ordered:
            self.forget()
        elif not is_behind:
            self._end()
        elif record is not None and len(self._queue):
            self.is_waiting = False
            self._recoveries.unwatch(self._webhook_id)
            self._continue_failing(record)

    def _end(self) -> None:
        self.is_waiting = False
        self._recoveries.unwatch(self._webhook_id)
        release_parked(self._queue)


def release_parked(queue: DeliveryQueue[LiveDelivery]) -> None:
    """Make the parked deliveries of a queue ready, the oldest first."""
    parked = [each for each in queue if each.is_parked]
    for each in sorted(parked, key=lambda each: each.event.offset):
        each.is_parked = False
        queue.requeue(each, in_front=False)
