"""What a broker does by the clock: retention, producer expiry, checkpoints, idle connections."""

import logging
from collections.abc import Iterable
from typing import Final

from logbroker.config import BrokerConfig
from logbroker.errors import StorageFailed
from logbroker.server.connection import Connection
from logbroker.server.file_removal import FileRemoval
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.partition import Partitions
from logbroker.server.workers import Workers
from logbroker.storage.log_directory import LogDirectory

log = logging.getLogger("logbroker.housekeeping")

CHECKPOINT_S: Final = 5.0
"""Kafka's `replica.high.watermark.checkpoint.interval.ms`."""

IDLE_CHECK_S: Final = 5.0


class Housekeeping:
    """Periodic work on the loop's thread; what waits for the disk goes to a worker."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: SocketLoop,
        files: FileRemoval,
        partitions: Partitions,
        logs: LogDirectory,
        disk: Workers,
        connections: Iterable[Connection],
        counters: Counters,
    ) -> None:
        self._config = config
        self._loop = loop
        self._files = files
        self._partitions = partitions
        self._logs = logs
        self._disk = disk
        self._connections = connections
        self._counters = counters

    def start(self) -> None:
        """Begin the rounds."""
        self._loop.call_every(self._config.retention_check_s, self.apply_retention)
        self._loop.call_every(CHECKPOINT_S, self._checkpoint)
        self._loop.call_every(IDLE_CHECK_S, self._close_idle)

    def apply_retention(self) -> None:
        """Drop segments that are too old or too many, and producers not heard of for long."""
        now_ms = self._loop.now_ms
        expiration_ms = int(self._config.producer_id_expiration_s * 1000)
        for partition in self._partitions:
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
                self._counters.segments_deleted_bytes += sum(gone.size_bytes for gone in deleted)
                self._files.remove_later(path for gone in deleted for path in gone.paths)

    def _checkpoint(self) -> None:
        self._disk.run(self._logs.write_checkpoints, self._report)

    def _report(self, result: Exception | None) -> None:
        if result is not None:
            self._counters.checkpoint_failures += 1
            log.error("checkpoint failed: %s", result)

    def _close_idle(self) -> None:
        oldest_s = self._loop.now_s - self._config.connection_idle_s
        for connection in list(self._connections):
            # Who waits for an answer is not idle, however long that answer takes.
            if connection.last_active_s < oldest_s and not connection.answers:
                connection.close("idle")
