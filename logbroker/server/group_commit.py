"""Continuous group commit: while one flush of a log runs, the next group accumulates.

The high watermark is the flushed offset, so consumers read only records that survive a crash.
Responses with `acks=all` wait for it. `flush.messages` and `flush.ms` of a topic delay the flush.

Source: the 2011 Kafka paper, section 3.1, "a message is only exposed to the consumers after
it is flushed".
"""

import logging
import time
from collections.abc import Callable

from logbroker.config import UNSET
from logbroker.errors import StorageFailed
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partition
from logbroker.server.worker_pool import WorkerPool
from logbroker.storage.partition_log import PartitionLog

log = logging.getLogger("logbroker.group_commit")


class GroupCommit:
    """Flushes logs when due, one flush per log at a time, and reports the results."""

    def __init__(
        self,
        loop: SocketLoop,
        flushers: WorkerPool,
        counters: Counters,
        on_flushed: Callable[[Partition], None],
        on_failed: Callable[[Partition, StorageFailed], None],
    ) -> None:
        self._loop = loop
        self._flushers = flushers
        self._counters = counters
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._failed: set[Partition] = set()
        """Partitions that reject appends until they are reopened; the failure is logged once."""

    @property
    def partitions_flush_failed(self) -> int:
        """The number of logs that reject appends until they are reopened; safe on any thread."""
        return len(self._failed)

    def schedule_flush(self, partition: Partition) -> None:
        """Flush written records now, after `flush.ms`, or after the running flush."""
        if not partition.is_open or partition.is_flushing or partition.log.unflushed_messages == 0:
            return
        config = partition.log.config
        if config.flushes_continuously or partition.log.unflushed_messages >= config.flush_messages:
            self._start(partition)
        elif config.flush_ms != UNSET and partition.flush_timer is None:
            due_s = self._loop.now_s + config.flush_ms / 1000
            partition.flush_timer = self._loop.call_at(due_s, lambda: self._start(partition))

    def reschedule_flush(self, partition: Partition) -> None:
        """Schedule the flush by the current settings, after the log is opened or they change."""
        _cancel_timer(partition)
        self.schedule_flush(partition)

    def remove_partition(self, partition: Partition) -> None:
        """Stop flushing a closed partition."""
        _cancel_timer(partition)
        self._failed.discard(partition)

    def _start(self, partition: Partition) -> None:
        _cancel_timer(partition)
        if partition.is_flushing or not partition.is_open:
            return
        partition.is_flushing = True
        self._flushers.submit(
            lambda: _timed_flush(partition.log), lambda result: self._finish(partition, result)
        )

    def _finish(self, partition: Partition, result: tuple[int, float] | Exception) -> None:
        partition.is_flushing = False
        if not partition.is_open:
            return
        if isinstance(result, StorageFailed):
            self._record_failure(partition, result)
            self._on_failed(partition, result)
            return
        if isinstance(result, Exception):
            raise result
        flushed_offset, seconds = result
        self._counters.flush_seconds.observe(seconds)
        partition.log.advance_high_watermark(flushed_offset)
        self._on_flushed(partition)
        self.schedule_flush(partition)

    def _record_failure(self, partition: Partition, failure: StorageFailed) -> None:
        """Count and log a failure once: later flushes of the log fail without I/O."""
        if partition not in self._failed:
            self._failed.add(partition)
            self._counters.flush_failures += 1
            log.error("flush failed partition=%s reason=%s", partition, failure)


def _timed_flush(log: PartitionLog) -> tuple[int, float]:
    """Return the flushed offset and the duration of the flush in seconds."""
    began_s = time.monotonic()
    offset = log.flush()
    return offset, time.monotonic() - began_s


def _cancel_timer(partition: Partition) -> None:
    if partition.flush_timer is not None:
        partition.flush_timer.cancel()
        partition.flush_timer = None
