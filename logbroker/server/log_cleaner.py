"""Compacts the logs of topics with `cleanup.policy=compact`, one after the other, on a thread."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Final, TypeVar

from logbroker.config import BrokerConfig
from logbroker.errors import CorruptBatch, StorageFailed
from logbroker.server.housekeeping import FileDeletion
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partition, Partitions
from logbroker.server.worker_pool import Pauses, WorkerPool
from logbroker.storage.cleaner import CleanedLog, CleaningStopped, SegmentCleaner, find_dirty_part
from logbroker.storage.domain.compaction import DirtyPart
from logbroker.storage.log_directory import LogDirectory
from logbroker.storage.partition_log import PartitionLog

log = logging.getLogger("logbroker.cleaner")

ANSWER_CHECK_S: Final = 0.2
"""How often a thread that waits for the loop checks whether the broker shuts down."""

T = TypeVar("T")


class LogCleaner:
    """Compacts the log with the largest share of new bytes first, as often as one is due.

    Everything but renaming happens on a thread of its own: a compaction takes seconds for some
    hundred megabytes, and checkpoints must not wait for it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: SocketLoop,
        files: FileDeletion,
        partitions: Partitions,
        logs: LogDirectory,
        counters: Counters,
    ) -> None:
        self._config = config
        self._loop = loop
        self._files = files
        self._partitions = partitions
        self._logs = logs
        self._counters = counters
        self._pool = WorkerPool(loop, "cleaner", 1)
        self._is_running = False
        self._pauses = Pauses()
        self._stopping = Event()

    def start(self) -> None:
        """Schedule the search for logs to compact."""
        self._loop.call_every(self._config.cleaner_backoff_s, self.compact)

    def compact(self) -> None:
        """Compact all logs that are due, unless that is in progress."""
        compacted = [each for each in self._partitions if each.log.config.is_compacted]
        if compacted and not self._is_running:
            self._is_running = True
            now_ms = self._loop.now_ms
            self._pool.submit(lambda: self._clean_all(compacted, now_ms), self._finish)

    def close(self) -> None:
        """Stop, and wait for the thread; a replacement that has begun is completed at the start."""
        self._stopping.set()
        self._pool.close()

    # --- what a cleaner needs ---

    def pause(self) -> None:
        """Let other threads run."""
        if self._stopping.is_set():
            raise CleaningStopped("the broker shuts down")
        self._pauses.pause()

    def on_loop(self, call: Callable[[], T]) -> T:
        """Return the result of a call on the loop's thread."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(call())
            except Exception as error:
                # It is raised again on the thread that waits.
                result.set_exception(error)

        self._loop.call_soon(run)
        while not self._stopping.is_set():
            try:
                return result.result(timeout=ANSWER_CHECK_S)
            except TimeoutError:
                continue
        raise CleaningStopped("the broker shuts down")

    def is_open(self, partition_log: PartitionLog) -> bool:
        """Return whether the log was not deleted."""
        key = partition_log.topic, partition_log.partition
        return self._logs.logs.get(key) is partition_log

    def write_checkpoints(self) -> None:
        """Make the recovery points durable."""
        self._logs.write_checkpoints()

    def delete_later(self, partition_log: PartitionLog, paths: Sequence[Path]) -> None:
        """Delete renamed files after `file.delete.delay.ms`."""
        self._files.schedule(paths, partition_log.config.file_delete_delay_ms)

    # --- on the thread ---

    def _clean_all(self, partitions: Sequence[Partition], now_ms: int) -> None:
        due: list[tuple[DirtyPart, PartitionLog]] = []
        for partition in partitions:
            partition_log = partition.log
            try:
                part = find_dirty_part(partition_log, self._cleaned_until(partition_log), now_ms)
            except (OSError, CorruptBatch) as error:
                self._report_failure(partition_log, error)
                continue
            if part is not None:
                due.append((part, partition_log))
        due.sort(key=lambda each: each[0].ratio, reverse=True)
        for part, partition_log in due:
            try:
                self._clean(partition_log, part, now_ms)
            except CleaningStopped as reason:
                log.info("stopped partition=%s reason=%s", partition_log.folder.name, reason)
            except (OSError, CorruptBatch, StorageFailed) as error:
                self._report_failure(partition_log, error)

    def _clean(self, partition_log: PartitionLog, part: DirtyPart, now_ms: int) -> None:
        start_s = time.monotonic()
        buffer_bytes = self._config.cleaner_dedupe_buffer_bytes
        cleaned = SegmentCleaner(partition_log, self, buffer_bytes, now_ms).clean(part)
        self.on_loop(lambda: self._record(partition_log, cleaned))
        log.info(
            "compacted partition=%s end_offset=%d passes=%d bytes_before=%d bytes_after=%d "
            "seconds=%.3f",
            partition_log.folder.name,
            cleaned.end_offset,
            cleaned.passes,
            cleaned.bytes_before,
            cleaned.bytes_after,
            time.monotonic() - start_s,
        )

    def _cleaned_until(self, partition_log: PartitionLog) -> int:
        return self._logs.cleaned_until.get((partition_log.topic, partition_log.partition), 0)

    # --- on the loop's thread ---

    def _record(self, partition_log: PartitionLog, cleaned: CleanedLog) -> None:
        if self.is_open(partition_log):
            key = partition_log.topic, partition_log.partition
            self._logs.cleaned_until[key] = cleaned.end_offset
        self._counters.compactions += 1
        self._counters.compacted_bytes += cleaned.bytes_before
        removed = cleaned.bytes_before - cleaned.bytes_after
        self._counters.compaction_removed_bytes += max(0, removed)

    def _report_failure(self, partition_log: PartitionLog, error: Exception) -> None:
        self._counters.compaction_failures += 1
        log.error("compaction failed partition=%s reason=%s", partition_log.folder.name, error)

    def _finish(self, result: Exception | None) -> None:
        self._is_running = False
        if result is not None:
            self._counters.compaction_failures += 1
            log.error("compaction failed", exc_info=result)
