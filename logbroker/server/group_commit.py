"""Continuous group commit: while one flush of a log runs, the next group gathers.

The high watermark is the flushed offset, so consumers see what would survive a crash, and
`acks=all` is answered then. A topic with `flush.messages` or `flush.ms` waits for these first.

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
from logbroker.server.workers import Workers
from logbroker.storage.partition_log import PartitionLog

log = logging.getLogger("logbroker.group_commit")


class GroupCommit:
    """Starts flushes when they are due, one for each log at a time, and tells who waited."""

    def __init__(
        self,
        loop: SocketLoop,
        flushers: Workers,
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
        """Logs that take nothing more, and of which that was said."""

    @property
    def partitions_failed(self) -> int:
        """How many logs take nothing more until restart; any thread may ask."""
        return len(self._failed)

    def written(self, partition: Partition) -> None:
        """Something was written to this log: flush it now, soon, or after the running flush."""
        if not partition.is_open or partition.is_flushing or partition.log.unflushed_messages == 0:
            return
        config = partition.log.config
        if config.flushes_continuously or partition.log.unflushed_messages >= config.flush_messages:
            self._start(partition)
        elif config.flush_ms != UNSET and partition.flush_timer is None:
            due_s = self._loop.now_s + config.flush_ms / 1000
            partition.flush_timer = self._loop.call_at(due_s, lambda: self._start(partition))

    def reconsider(self, partition: Partition) -> None:
        """The log was opened, or its settings changed: what is not flushed yet follows them."""
        _cancel_timer(partition)
        self.written(partition)

    def closed(self, partition: Partition) -> None:
        """The partition is served no longer: its flushes are not started, nor told, any more."""
        _cancel_timer(partition)
        self._failed.discard(partition)

    def _start(self, partition: Partition) -> None:
        _cancel_timer(partition)
        if partition.is_flushing or not partition.is_open:
            return
        partition.is_flushing = True
        self._flushers.run(
            lambda: _timed_flush(partition.log), lambda result: self._ended(partition, result)
        )

    def _ended(self, partition: Partition, result: tuple[int, float] | Exception) -> None:
        partition.is_flushing = False
        if not partition.is_open:
            return
        if isinstance(result, StorageFailed):
            self._note(partition, result)
            self._on_failed(partition, result)
            return
        if isinstance(result, Exception):
            raise result
        flushed_offset, seconds = result
        self._counters.flush_seconds.observe(seconds)
        partition.log.advance_high_watermark(flushed_offset)
        self._on_flushed(partition)
        self.written(partition)

    def _note(self, partition: Partition, failure: StorageFailed) -> None:
        """Count and say it once: no later flush of this log asks the disk again."""
        if partition not in self._failed:
            self._failed.add(partition)
            self._counters.flush_failures += 1
            log.error("flush failed partition=%s reason=%s", partition, failure)


def _timed_flush(log: PartitionLog) -> tuple[int, float]:
    """The flushed offset, and how many seconds the flush took on its thread."""
    began_s = time.monotonic()
    offset = log.flush()
    return offset, time.monotonic() - began_s


def _cancel_timer(partition: Partition) -> None:
    if partition.flush_timer is not None:
        partition.flush_timer.cancel()
        partition.flush_timer = None
