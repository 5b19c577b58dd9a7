"""Periodic work: retention, producer expiry, checkpoints, idle connections; file deletion."""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from logbroker.config import BrokerConfig
from logbroker.errors import StorageFailed
from logbroker.server.connection import Connection
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partitions
from logbroker.server.worker_pool import WorkerPool
from logbroker.storage.log_directory import LogDirectory
from logbroker.storage.segment import LOG_SUFFIX

log = logging.getLogger("logbroker.housekeeping")

CHECKPOINT_S: Final = 5.0
"""Kafka's `replica.high.watermark.checkpoint.interval.ms`."""

IDLE_CHECK_S: Final = 5.0

LOGS_PER_TURN: Final = 32
"""The maximum of logs that retention is applied to in one turn of the loop."""


class FileDeletion:
    """Deletes renamed files and folders after a delay in which readers can finish."""

    def __init__(self, loop: SocketLoop, disk_pool: WorkerPool) -> None:
        self._loop = loop
        self._disk_pool = disk_pool

    def schedule(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Delete files and folders after `delay_ms`, off the loop's thread."""
        deleted = list(paths)
        if deleted:
            due_s = self._loop.now_s + delay_ms / 1000
            self._loop.call_at(due_s, lambda: self._delete(deleted))

    def _delete(self, paths: list[Path]) -> None:
        self._disk_pool.submit(lambda: _delete_all(paths), _log_failed_deletion)


class Housekeeping:
    """Periodic work on the loop's thread; disk writes run on `disk_pool`."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: SocketLoop,
        files: FileDeletion,
        partitions: Partitions,
        logs: LogDirectory,
        disk_pool: WorkerPool,
        connections: Iterable[Connection],
        counters: Counters,
    ) -> None:
        self._config = config
        self._loop = loop
        self._files = files
        self._partitions = partitions
        self._logs = logs
        self._disk_pool = disk_pool
        self._connections = connections
        self._counters = counters

    def start(self) -> None:
        """Schedule the periodic work."""
        self._loop.call_every(self._config.retention_check_s, self.apply_retention)
        self._loop.call_every(CHECKPOINT_S, self._checkpoint)
        self._loop.call_every(IDLE_CHECK_S, self._close_idle)

    def apply_retention(self) -> None:
        """Delete segments by age and size, and expire inactive producers; some logs per turn."""
        self._loop.run_parts(self._apply_retention(), lambda: None)

    def _apply_retention(self) -> Iterator[None]:
        now_ms = self._loop.now_ms
        expiration_ms = int(self._config.producer_id_expiration_s * 1000)
        for number, partition in enumerate(self._partitions.all(), 1):
            if number % LOGS_PER_TURN == 0:
                yield
            if not partition.is_open:
                continue  # it was closed in an earlier turn
            partition.log.expire_producers(now_ms, expiration_ms)
            try:
                deleted = partition.log.apply_retention(now_ms)
            except StorageFailed as failure:
                self._counters.retention_failures += 1
                log.error("retention failed partition=%s reason=%s", partition, failure)
                continue
            if deleted:
                log.info("retention partition=%s segments=%d", partition, len(deleted))
                self._counters.segments_deleted += len(deleted)
                self._counters.segments_deleted_bytes += sum(each.size_bytes for each in deleted)
                delay_ms = partition.log.config.file_delete_delay_ms
                self._files.schedule((path for each in deleted for path in each.paths), delay_ms)

    def _checkpoint(self) -> None:
        self._disk_pool.submit(self._logs.write_checkpoints, self._finish_checkpoint)

    def _finish_checkpoint(self, result: Exception | None) -> None:
        if result is not None:
            self._counters.checkpoint_failures += 1
            log.error("checkpoint failed: %s", result)

    def _close_idle(self) -> None:
        oldest_s = self._loop.now_s - self._config.connection_idle_s
        for connection in list(self._connections):
            # A connection with a pending response is not idle, however long that takes.
            if connection.last_active_s < oldest_s and not connection.responses:
                connection.close("idle")


def _delete_all(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            for segment in path.glob(f"*{LOG_SUFFIX}*"):
                _truncate_segment(segment)
            shutil.rmtree(path, ignore_errors=True)
        else:
            _truncate_segment(path)
            path.unlink(missing_ok=True)


def _truncate_segment(path: Path) -> None:
    """Free the blocks of a segment on this thread.

    Otherwise the last reader's `close` frees them, which takes a third of a second for some
    hundred megabytes. A reader that is still not finished has its connection closed.
    """
    if LOG_SUFFIX in path.suffixes and path.exists():
        os.truncate(path, 0)


def _log_failed_deletion(result: Exception | None) -> None:
    if result is not None:
        log.error("cannot delete files of a deleted log: %s", result)
