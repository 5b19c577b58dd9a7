"""The data directory of a broker: a folder for each partition, and what is known of all."""

import fcntl
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from logbroker.config import LogConfig
from logbroker.errors import ConfigurationError, DataDirectoryInUse, StorageFailed
from logbroker.storage.checkpoints import OffsetCheckpoint, TopicPartition
from logbroker.storage.file_writes import replace_file, sync_directory
from logbroker.storage.identity import (
    META_NAME,
    PARTITION_METADATA_NAME,
    DirectoryIdentity,
    read_directory_identity,
    read_topic_id,
    write_directory_identity,
)
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, LoadedLog, create_folder, load_folder
from logbroker.storage.segment import LOG_SUFFIX

LOCK_NAME: Final = ".lock"
CLEAN_MARKER_NAME: Final = ".kafka_cleanshutdown"
CLEAN_MARKER: Final = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
"""Kafka's content; a broker without KRaft has no epoch."""

DELETE_SUFFIX: Final = "-delete"
FILE_NAME_CHARS_MAX: Final = 255

FOLDERS_AT_ONCE: Final = 8
"""A new folder is a handful of flushes; a file system does those of several together."""

_FOLDER_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")

_log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """The topic that a folder belongs to, and the settings of its logs."""

    topic: str
    config: LogConfig


class NewLog(NamedTuple):
    """A log to be made, for a partition of the topic with this id."""

    topic: str
    partition: int
    topic_id: UUID
    config: LogConfig


class Recovery(NamedTuple):
    """What opening all logs took, and what it found."""

    seconds: float = 0.0
    logs: int = 0
    """Logs that were not closed cleanly."""
    dropped_bytes: int = 0


class LogDirectory:
    """A directory of `<topic>-<partition>/` folders that one process holds at a time.

    Beside the folders: `.lock` (held by `flock` while claimed), `meta.properties` (whose it is,
    see `DirectoryIdentity`), three checkpoints (see `OffsetCheckpoint`) and, while no broker
    runs, `.kafka_cleanshutdown`. The marker is written last at a clean close and removed first
    at loading, so it is there only when every log was closed whole. Folders of deleted topics
    get `-delete` names at once; those that a crash leaves are removed at loading.

    Source: Kafka, `LogManager.scala`.
    """

    def __init__(self, path: Path, lock_descriptor: int) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.recovery = Recovery()
        self._lock_descriptor = lock_descriptor
        self._recovery_points = OffsetCheckpoint(path / "recovery-point-offset-checkpoint")
        self._log_starts = OffsetCheckpoint(path / "log-start-offset-checkpoint")
        self._high_watermarks = OffsetCheckpoint(path / "replication-offset-checkpoint")
        self._checkpointing = Lock()
        self._deleted: set[TopicPartition] = set()
        """Logs that are gone, and that the checkpoints may still know."""

    @classmethod
    def claim(cls, path: Path) -> "LogDirectory":
        """Take a directory's lock, and nothing else; it is created when it is missing.

        Raises:
            DataDirectoryInUse: another process has it.
            OSError: the disk refused.
        """
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, _take_lock(path / LOCK_NAME))

    @property
    def identity(self) -> DirectoryIdentity | None:
        """Whose the directory is; none when nobody has used it yet.

        Raises:
            ConfigurationError: the file that says so is not readable, or was lost.
        """
        identity = read_directory_identity(self.path)
        if identity is None and next(self.path.glob(f"*/{PARTITION_METADATA_NAME}"), None):
            # Whoever took it for new would remove every log, since no topic of its own has them.
            raise ConfigurationError(f"{self.path} has logs, but {META_NAME} is missing")
        return identity

    def give_to(self, identity: DirectoryIdentity) -> None:
        """Make the directory somebody's for good.

        Raises:
            OSError: the disk refused.
        """
        write_directory_identity(self.path, identity)

    def load(
        self,
        owner_of: Callable[[UUID], Owner | None],
        now_ms: int,
        untouched: Collection[str] = (),
    ) -> None:
        """Open the logs of all topics that `owner_of` knows; remove the folders of all others.

        Those of `untouched` topics, of which nobody knows whether they are others, stay.
        Logs that were not closed cleanly are recovered, one line of log for each.

        Raises:
            ConfigurationError: a checkpoint, or what says whose a folder is, is not readable.
            OSError: the disk refused.
        """
        began_s = time.monotonic()
        is_clean = self._take_clean_marker()
        recovery_points = self._recovery_points.read()
        log_starts = self._log_starts.read()
        for folder in sorted(self.path.iterdir()):
            if folder.name.endswith(DELETE_SUFFIX):
                shutil.rmtree(folder)
            elif (name := _FOLDER_NAME.fullmatch(folder.name)) and folder.is_dir():
                key = name[1], int(name[2])
                config = self._config_of(folder, key, owner_of, untouched)
                if config is not None:
                    known = KnownOffsets(recovery_points.get(key, 0), log_starts.get(key, 0))
                    loaded = self._loaded(folder, known, now_ms, is_clean=is_clean)
                    self.logs[key] = PartitionLog(folder, *key, config, loaded)
        self.write_checkpoints()
        self.recovery = self.recovery._replace(seconds=time.monotonic() - began_s)

    def create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """A new, empty log; durable when this returns.

        Raises:
            StorageFailed: the disk refused, or the folder is there already.
        """
        key = topic, partition
        folder = self.path / f"{topic}-{partition}"
        if key in self._deleted:
            # What is known of the old one would have recovery throw the new one's records away.
            self.write_checkpoints()
        try:
            loaded = create_folder(folder, topic_id)
        except OSError as cause:
            raise StorageFailed(f"{folder.name} cannot be created: {cause}") from cause
        log = PartitionLog(folder, topic, partition, config, loaded)
        self.logs[key] = log
        return log

    def create_all(self, wanted: Sequence[NewLog]) -> dict[TopicPartition, StorageFailed]:
        """Make new, empty logs, several at a time: why not, for each that cannot be made."""

        def create(new: NewLog) -> StorageFailed | None:
            try:
                self.create(*new)
            except StorageFailed as failure:
                return failure
            return None

        with ThreadPoolExecutor(FOLDERS_AT_ONCE, "create-log") as threads:
            failures = zip(wanted, threads.map(create, wanted), strict=True)
            return {(new.topic, new.partition): failed for new, failed in failures if failed}

    def delete(self, topic: str, partitions: Iterable[int]) -> list[Path]:
        """Take a topic's logs out at once: the renamed folders, which the caller removes.

        Raises:
            StorageFailed: the disk refused; the logs are out all the same, their folders stay.
        """
        gone = [key for number in partitions if (key := (topic, number)) in self.logs]
        if not gone:
            return []
        # First of all: a topic that gets the name again must not find, and use, an old log.
        logs = [self._take_out(key) for key in gone]
        try:
            renamed = [
                _renamed_to_delete(log.folder, key) for log, key in zip(logs, gone, strict=True)
            ]
            sync_directory(self.path)
        except OSError as cause:
            raise StorageFailed(f"topic {topic} cannot be deleted: {cause}") from cause
        return renamed

    def write_checkpoints(self) -> None:
        """Write down what is flushed and where logs begin; any thread.

        Raises:
            StorageFailed: the disk refused.
        """
        with self._checkpointing:
            forgotten = list(self._deleted)
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
            self._deleted.difference_update(forgotten)

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
            self.release()

    def release(self) -> None:
        """Let go of the lock and leave everything as it is, as a dead process does."""
        os.close(self._lock_descriptor)

    def _config_of(
        self,
        folder: Path,
        key: TopicPartition,
        owner_of: Callable[[UUID], Owner | None],
        untouched: Collection[str],
    ) -> LogConfig | None:
        """The settings of a folder's log; none where it is not to be opened."""
        if not _has_records(folder) and not _says_whose(folder):
            # A creation was cut short; the log is made anew where it is wanted.
            shutil.rmtree(folder)
            return None
        topic_id = read_topic_id(folder)
        if topic_id is None:
            _log.warning("left alone: folder %s does not say whose it is", folder.name)
            return None
        owner = owner_of(topic_id)
        if owner is None and key[0] in untouched:
            _log.warning(
                "left alone: nobody can read which topic folder %s belongs to", folder.name
            )
            return None
        if owner is None:
            _log.info("removed folder %s: its topic is gone", folder.name)
            shutil.rmtree(_renamed_to_delete(folder, key))
            return None
        if owner.topic != key[0]:
            _log.warning("left alone: folder %s belongs to topic %s", folder.name, owner.topic)
            return None
        return owner.config

    def _loaded(
        self, folder: Path, known: KnownOffsets, now_ms: int, *, is_clean: bool
    ) -> LoadedLog:
        log, was_recovered, dropped_bytes = load_folder(folder, known, now_ms, is_clean=is_clean)
        if was_recovered:
            _, logs, bytes_before = self.recovery
            self.recovery = Recovery(0.0, logs + 1, bytes_before + dropped_bytes)
            _log.warning(
                "recovered %s: offsets %d to %d, %d bytes dropped",
                folder.name,
                log.start_offset,
                log.end_offset,
                dropped_bytes,
            )
        return log

    def _take_clean_marker(self) -> bool:
        marker = self.path / CLEAN_MARKER_NAME
        if not marker.exists():
            return False
        # From here on the logs may change, so a crash must find no marker.
        marker.unlink()
        sync_directory(self.path)
        return True

    def _take_out(self, key: TopicPartition) -> PartitionLog:
        log = self.logs.pop(key)
        log.discard()
        self._deleted.add(key)
        return log


def _renamed_to_delete(folder: Path, key: TopicPartition) -> Path:
    suffix = f"-{key[1]}.{uuid4().hex}{DELETE_SUFFIX}"
    return folder.rename(folder.with_name(key[0][: FILE_NAME_CHARS_MAX - len(suffix)] + suffix))


def _has_records(folder: Path) -> bool:
    return any(path.stat().st_size for path in folder.glob(f"*{LOG_SUFFIX}"))


def _says_whose(folder: Path) -> bool:
    try:
        return read_topic_id(folder) is not None
    except ConfigurationError:
        return False


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
