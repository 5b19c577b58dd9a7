"""The data directory of a broker: a folder for each partition, and what is known of all."""

import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import uuid4

from logbroker.config import LogConfig
from logbroker.errors import DataDirectoryInUse, StorageFailed
from logbroker.storage.checkpoints import OffsetCheckpoint, TopicPartition
from logbroker.storage.durable_file import replace_file, sync_directory
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, create_folder, load_folder

LOCK_NAME: Final = ".lock"
CLEAN_MARKER_NAME: Final = ".kafka_cleanshutdown"
CLEAN_MARKER: Final = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
"""Kafka's content; a broker without KRaft has no epoch."""

DELETE_SUFFIX: Final = "-delete"
FILE_NAME_CHARS_MAX: Final = 255

_FOLDER_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")

_log = logging.getLogger(__name__)


class LogDirectory:
    """A directory of `<topic>-<partition>/` folders that one process holds at a time.

    Beside the folders: `.lock` (held by `flock` while open), three checkpoints (see
    `OffsetCheckpoint`) and, while no broker runs, `.kafka_cleanshutdown`. The marker is
    written last at a clean close and removed first at opening, so it is there only when
    every log was closed whole. Folders of deleted topics get `-delete` names at once;
    those that a crash leaves are removed at opening.

    Source: Kafka, `LogManager.scala`.
    """

    def __init__(self, path: Path, lock_descriptor: int) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._lock_descriptor = lock_descriptor
        self._recovery_points = OffsetCheckpoint(path / "recovery-point-offset-checkpoint")
        self._log_starts = OffsetCheckpoint(path / "log-start-offset-checkpoint")
        self._high_watermarks = OffsetCheckpoint(path / "replication-offset-checkpoint")
        self._checkpointing = Lock()

    @classmethod
    def open(
        cls, path: Path, config_for: Callable[[str], LogConfig], now_ms: int
    ) -> "LogDirectory":
        """Open all logs of a directory, which is created when it is missing.

        Logs that were not closed cleanly are recovered, one line of log for each.

        Raises:
            DataDirectoryInUse: another process has it open.
            ConfigurationError: a checkpoint is not readable as one.
            OSError: the disk refused.
        """
        path.mkdir(parents=True, exist_ok=True)
        directory = cls(path, _take_lock(path / LOCK_NAME))
        try:
            directory._load(config_for, now_ms)
        except BaseException:
            directory._release_lock()
            raise
        return directory

    def create(self, topic: str, partition: int, config: LogConfig) -> PartitionLog:
        """A new, empty log; durable when this returns.

        Raises:
            StorageFailed: the disk refused, or the folder is there already.
        """
        folder = self.path / f"{topic}-{partition}"
        try:
            loaded = create_folder(folder)
        except OSError as cause:
            raise StorageFailed(f"{folder.name} cannot be created: {cause}") from cause
        log = PartitionLog(folder, topic, partition, config, loaded)
        self.logs[topic, partition] = log
        return log

    def delete(self, topic: str) -> list[Path]:
        """Take a topic out at once: the renamed folders, which the caller removes.

        The checkpoints forget it, too: a topic of the same name begins at offset 0, and what
        was known of the old one would have recovery throw the new one's records away.

        Raises:
            StorageFailed: the disk refused.
        """
        gone = [key for key in self.logs if key[0] == topic]
        try:
            renamed = [self._delete_partition(key) for key in gone]
            sync_directory(self.path)
        except OSError as cause:
            raise StorageFailed(f"topic {topic} cannot be deleted: {cause}") from cause
        self.write_checkpoints()
        return renamed

    def write_checkpoints(self) -> None:
        """Write down what is flushed and where logs begin; any thread.

        Raises:
            StorageFailed: the disk refused.
        """
        with self._checkpointing:
            logs = list(self.logs.items())
            flushed = {key: log.high_watermark for key, log in logs}
            starts = {
                key: log.log_start_offset
                for key, log in logs
                if log.log_start_offset > log.segments[0].base_offset
            }
            try:
                self._log_starts.write(starts)
                self._recovery_points.write(flushed)
                self._high_watermarks.write(flushed)
            except OSError as cause:
                raise StorageFailed(f"checkpoints cannot be written: {cause}") from cause

    def close(self) -> None:
        """Close every log; when all of them close whole, the next opening scans nothing.

        Raises:
            StorageFailed: a log is not whole; the others are closed all the same.
        """
        try:
            failures = [failed for log in self.logs.values() if (failed := _closed(log))]
            self.write_checkpoints()
            if failures:
                raise failures[0]
            replace_file(self.path / CLEAN_MARKER_NAME, CLEAN_MARKER)
        finally:
            self._release_lock()

    def _load(self, config_for: Callable[[str], LogConfig], now_ms: int) -> None:
        is_clean = self._take_clean_marker()
        recovery_points = self._recovery_points.read()
        log_starts = self._log_starts.read()
        for folder in sorted(self.path.iterdir()):
            if folder.name.endswith(DELETE_SUFFIX):
                shutil.rmtree(folder)
            elif (name := _FOLDER_NAME.fullmatch(folder.name)) and folder.is_dir():
                key = name[1], int(name[2])
                known = KnownOffsets(recovery_points.get(key, 0), log_starts.get(key, 0))
                loaded = load_folder(folder, known, now_ms, is_clean=is_clean)
                if loaded.was_recovered:
                    _log.warning(
                        "recovered %s: offsets %d to %d, %d bytes dropped",
                        folder.name,
                        loaded.log.start_offset,
                        loaded.log.end_offset,
                        loaded.dropped_bytes,
                    )
                self.logs[key] = PartitionLog(folder, *key, config_for(key[0]), loaded.log)
        self.write_checkpoints()

    def _take_clean_marker(self) -> bool:
        marker = self.path / CLEAN_MARKER_NAME
        if not marker.exists():
            return False
        # From here on the logs may change, so a crash must find no marker.
        marker.unlink()
        sync_directory(self.path)
        return True

    def _delete_partition(self, key: TopicPartition) -> Path:
        log = self.logs[key]
        suffix = f"-{log.partition}.{uuid4().hex}{DELETE_SUFFIX}"
        renamed = self.path / (log.topic[: FILE_NAME_CHARS_MAX - len(suffix)] + suffix)
        log.folder.rename(renamed)
        log.discard()
        del self.logs[key]
        return renamed

    def _release_lock(self) -> None:
        os.close(self._lock_descriptor)


def _take_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataDirectoryInUse(f"{path.parent} is in use: another process holds {path}") from None
    return descriptor


def _closed(log: PartitionLog) -> StorageFailed | None:
    try:
        log.close()
    except StorageFailed as failed:
        return failed
    return None
