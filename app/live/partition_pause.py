"""Pauses the partition of a full queue while its receiver accepts events fast."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from app.domain.rates import ThroughputEstimate
from app.live.delivery import DeliveryPartition
from app.live.queue_context import QueueContext

THROUGHPUT_CHECK_S: Final = 1.0
BUSY_THROUGHPUT_CHECK_S: Final = 5.0
"""How long a full queue pauses its partition before its throughput is checked. The longer time
applies while this process is too busy for any receiver to be fast."""


class PartitionPause:
    """The pause for one webhook. For one event loop.

    `leave_excess` is called when the receiver is not fast: events that exceed the limits are not to
    wait in the queue.
    """

    def __init__(
        self, webhook_id: str, context: QueueContext, leave_excess: Callable[[], None]
    ) -> None:
        self._webhook_id = webhook_id
        self._context = context
        self._leave_excess = leave_excess
        self._throughput = ThroughputEstimate()
        self._is_slow = False
        self._paused: DeliveryPartition | None = None
        self._paused_s = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether a partition is paused."""
        return self._paused is not None

    @property
    def is_worthwhile(self) -> bool:
        """Whether the receiver is fast, or not known to be slow."""
        if self._throughput.is_fast(time.monotonic()):
            self._is_slow = False
        return not self._is_slow

    def record_delivery(self, now_s: float) -> None:
        """The receiver accepted an event."""
        self._throughput.record_delivery(now_s)

    def pause(self, partition: DeliveryPartition) -> None:
        """Pause a partition, unless one is paused."""
        if self._paused is None:
            self._paused = partition
            self._paused_s = time.monotonic()
            self._context.recorder.pause_partition(partition, self._webhook_id)
            self._check_throughput_later(partition)

    def resume(self) -> None:
        """Read the paused partition again."""
        if self._paused is not None:
            partition, self._paused = self._paused, None
            self._context.recorder.resume_partition(partition, self._webhook_id)

    def forget(self, partition: DeliveryPartition) -> None:
        """Forget a partition that another process has."""
        if self._paused is partition:
            self._paused = None

    def _check_throughput_later(self, partition: DeliveryPartition) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(THROUGHPUT_CHECK_S, self._check_throughput, partition)

    def _check_throughput(self, partition: DeliveryPartition) -> None:
        """Keep the partition paused for a fast receiver; otherwise leave the excess events."""
        if self._paused is not partition:
            return
        now_s = time.monotonic()
        is_early = self._context.is_busy and now_s - self._paused_s < BUSY_THROUGHPUT_CHECK_S
        if is_early or self._throughput.is_fast(now_s):
            self._check_throughput_later(partition)
            return
        self._is_slow = True
        self._leave_excess()
        self.resume()
