"""The data directory of a broker: partition folders, checkpoints and the lock."""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from logbroker.config import LogConfig
from logbroker.errors import ConfigurationError, StorageFailed
from logbroker.storage.checkpoints import OffsetCheckpoint, TopicPartition
from logbroker.storage.file_writes import replace_file, sync_directory
from logbroker.storage.identity import (
    META_NAME,
    PARTITION_METADATA_NAME,
    DirectoryIdentity,
    has_topic_id,
    lock_directory,
    read_directory_identity,
    read_topic_id,
    write_directory_identity,
)
from logbroker.storage.partition_folder import (
    DELETE_SUFFIX,
    has_records,
    is_left_over,
    partition_of,
    rename_to_delete,
)
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, LoadedLog, create_folder, load_folder
from logbroker.storage.segment import LOG_SUFFIX
from logbroker.storage.segment_file import drop_from_cache

CLEAN_MARKER_NAME: Final = ".kafka_cleanshutdown"
CLEAN_MARKER: Final = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
"""As in Kafka; a broker without KRaft has no epoch."""

OFFSET_MAX: Final = 2**63 - 1

FOLDERS_AT_ONCE: Final = 4
"""A new folder needs several flushes, which a file system groups across threads. More threads
would take the interpreter from the broker's loop more often."""

_log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """The topic of a folder, and the settings of its log."""

    topic: str
    config: LogConfig


class NewLog(NamedTuple):
    """A log to create, for a partition of the topic with this id."""

    topic: str
    partition: int
    topic_id: UUID
    config: LogConfig


CreatedLogs = dict[TopicPartition, PartitionLog | StorageFailed]
"""Each log that was to be created, or why it was not."""


class UnopenedLog(NamedTuple):
    """A log that is not open: why, and its checkpointed offsets."""

    failure: StorageFailed
    known: KnownOffsets
    is_unowned: bool = False
    """Whether metadata of its topic was unreadable: it is opened once that is readable."""


class Recovery(NamedTuple):
    """Duration and result of opening all logs."""

    seconds: float = 0.0
    logs: int = 0
    """Logs that were not closed cleanly."""
    dropped_bytes: int = 0


class LogDirectory:
    """A directory of `<topic>-<partition>/` folders, used by one process at a time.

    It also has `.lock` (held by `flock` while claimed), `meta.properties` (its owner, see
    `DirectoryIdentity`), four checkpoints (see `OffsetCheckpoint`) and, while no broker runs,
    `.kafka_cleanshutdown`. The marker is the last file written at a clean close and the first
    removed at loading, so it exists only if every log was closed cleanly. Folders of deleted
    topics are renamed to `*-delete`; those left by a crash are removed at loading.

    Source: Kafka, `LogManager.scala`.
    """

    def __init__(self, path: Path, lock_descriptor: int) -> None:
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.unopened: dict[TopicPartition, UnopenedLog] = {}
        """The logs that could not be opened; their files are kept."""
        self.recovery = Recovery()
        self._lock_descriptor = lock_descriptor
        self._recovery_points = OffsetCheckpoint(path / "recovery-point-offset-checkpoint")
        self._log_starts = OffsetCheckpoint(path / "log-start-offset-checkpoint")
        self._high_watermarks = OffsetCheckpoint(path / "replication-offset-checkpoint")
        self._cleaned = OffsetCheckpoint(path / "cleaner-offset-checkpoint")
        self.cleaned_until: dict[TopicPartition, int] = {}
        """The offset up to which each log is compacted, if it ever was."""
        self._checkpointing = Lock()
        self._deleted: set[TopicPartition] = set()
        """Deleted logs that the checkpoint files may still contain."""

    @classmethod
    def claim(cls, path: Path) -> "LogDirectory":
        """Lock a directory, which is created if missing.

        Raises:
            DataDirectoryInUse: another process holds the lock.
            OSError: a disk operation failed.
        """
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, lock_directory(path))

    @property
    def identity(self) -> DirectoryIdentity | None:
        """The owner of the directory; None if it is unused.

        Raises:
            ConfigurationError: `meta.properties` is invalid, or missing next to logs.
        """
        identity = read_directory_identity(self.path)
        if identity is None and next(self.path.glob(f"*/{PARTITION_METADATA_NAME}"), None):
            # As a new directory, it would lose every log, since no known topic has them.
            raise ConfigurationError(f"{self.path} has logs, but {META_NAME} is missing")
        return identity

    def set_identity(self, identity: DirectoryIdentity) -> None:
        """Store the owner of the directory.

        Raises:
            OSError: the write failed.
        """
        write_directory_identity(self.path, identity)

    def load(
        self,
        owner_of: Callable[[UUID], Owner | None],
        now_ms: int,
        unreadable: Collection[str] = (),
    ) -> None:
        """Open the logs of all topics that `owner_of` finds; remove all other folders.

        Logs that were not closed cleanly are recovered, with one log line each. A log that the disk
        cannot read or recover is in `unopened`, as are those of `unreadable` topics, and
        checkpoints that cannot be written are logged, so that the others are served.

        Raises:
            ConfigurationError: a checkpoint or the topic id of a folder is invalid.
            OSError: the directory or a checkpoint cannot be read.
        """
        start_s = time.monotonic()
        is_clean = self._remove_clean_marker()
        # A log is in the file before it is compacted; only a lost file leaves that part unknown.
        unknown_dense_from = 0 if self._recovery_points.path.exists() else OFFSET_MAX
        recovery_points = self._recovery_points.read()
        log_starts = self._log_starts.read()
        for folder in sorted(self.path.iterdir()):
            if folder.name.endswith(DELETE_SUFFIX):
                shutil.rmtree(folder)
            elif (key := partition_of(folder)) is not None:
                known = KnownOffsets(
                    recovery_points.get(key, 0),
                    log_starts.get(key, 0),
                    dense_from=recovery_points.get(key, unknown_dense_from),
                )
                try:
                    config = self._config_of(folder, key, owner_of, unreadable)
                    if config is not None:
                        loaded = self._load_folder(folder, known, now_ms, is_clean=is_clean)
                        self.logs[key] = PartitionLog(folder, *key, config, loaded)
                except StorageFailed as failure:
                    self.unopened[key] = UnopenedLog(failure, known, is_unowned=True)
                    _log.warning("%s", failure)
                except OSError as cause:
                    self.unopened[key] = UnopenedLog(_not_opened(folder, cause), known)
                    _log.error("%s", self.unopened[key].failure)
        self.cleaned_until = {
            key: offset
            for key, offset in self._cleaned.read().items()
            if key in self.logs or key in self.unopened
        }
        try:
            self.write_checkpoints()
        except StorageFailed as failure:
            # The earlier ones are still valid; a full disk must not keep a broker from serving.
            _log.error("%s", failure)
        self.recovery = self.recovery._replace(seconds=time.monotonic() - start_s)

    def create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig) -> PartitionLog:
        """Create and add an empty log, durable when the method returns.

        Raises:
            StorageFailed: a disk operation failed, or the folder exists.
        """
        log = self._create(NewLog(topic, partition, topic_id, config))
        self.add(log)
        return log

    def create_all(self, wanted: Sequence[NewLog]) -> CreatedLogs:
        """Create empty logs on several threads, without adding them; safe on any thread.

        Logs of `unopened` are opened instead.
        """
        now_ms = int(time.time() * 1000)

        def create(new: NewLog) -> PartitionLog | StorageFailed:
            if (new.topic, new.partition) in self.unopened:
                return self.open_again(new, now_ms)
            try:
                return self._create(new)
            except StorageFailed as failure:
                return failure

        with ThreadPoolExecutor(FOLDERS_AT_ONCE, "create-log") as threads:
            outcomes = zip(wanted, threads.map(create, wanted), strict=True)
            return {(new.topic, new.partition): outcome for new, outcome in outcomes}

    def open_again(self, wanted: NewLog, now_ms: int) -> PartitionLog | StorageFailed:
        """Open a log of `unopened`, or create one, without adding it; safe on any thread."""
        key = wanted.topic, wanted.partition
        unopened = self.unopened.get(key)
        folder = self.path / f"{wanted.topic}-{wanted.partition}"
        try:
            if unopened is None:
                if is_left_over(folder, wanted.topic_id):
                    shutil.rmtree(folder)
                return self._create(wanted)
            topic_id = read_topic_id(folder)
            if unopened.is_unowned and topic_id not in (None, wanted.topic_id):
                # Its topic was deleted while the metadata was unreadable.
                self.remove(*key)
                shutil.rmtree(rename_to_delete(folder, key))
                return self._create(wanted)
            if topic_id != wanted.topic_id:
                return StorageFailed(f"{folder.name} belongs to another topic")
            for segment in folder.glob(f"*{LOG_SUFFIX}"):
                drop_from_cache(segment)
            loaded = self._load_folder(folder, unopened.known, now_ms, is_clean=False)
        except StorageFailed as failure:
            return failure
        except (OSError, ConfigurationError) as cause:
            return _not_opened(folder, cause)
        return PartitionLog(folder, *key, wanted.config, loaded)

    def set_aside(self, log: PartitionLog, failure: StorageFailed) -> None:
        """Move a log that failed to `unopened`; nothing of it may be staged."""
        key, flushed = (log.topic, log.partition), log.high_watermark
        known = KnownOffsets(flushed, log.log_start_offset, dense_from=flushed)
        self.unopened[key] = UnopenedLog(failure, known)
        del self.logs[key]

    def lacks(self, topic: str, partition: int) -> bool:
        """Return whether `create_all` must create or open a log before it is served."""
        key = topic, partition
        unopened = self.unopened.get(key)
        return unopened.is_unowned if unopened is not None else key not in self.logs

    def add(self, log: PartitionLog) -> None:
        """Add a log that was created or opened again."""
        key = log.topic, log.partition
        self.logs[key] = log
        self.unopened.pop(key, None)

    def remove(self, topic: str, partition: int) -> bool:
        """Remove a log, so that a new topic with the same name cannot use it.

        Returns whether it has a folder.
        """
        key = topic, partition
        if key not in self.logs and key not in self.unopened:
            return False
        log = self.logs.pop(key, None)
        if log is not None:
            log.discard()
        self.unopened.pop(key, None)
        self.cleaned_until.pop(key, None)
        self._deleted.add(key)
        return True

    def rename_removed(self, topic: str, partitions: Sequence[int]) -> list[Path]:
        """Rename the folders of a topic's removed logs, for their deletion; safe on any thread.

        Raises:
            StorageFailed: a rename failed; the folders are kept.
        """
        if not partitions:
            return []
        try:
            renamed = [
                rename_to_delete(self.path / f"{topic}-{number}", (topic, number))
                for number in partitions
            ]
            sync_directory(self.path)
        except OSError as cause:
            raise StorageFailed(f"topic {topic} cannot be deleted: {cause}") from cause
        return renamed

    def write_checkpoints(self) -> None:
        """Write recovery points and all other checkpoints; safe on any thread.

        Raises:
            StorageFailed: a write failed.
        """
        with self._checkpointing:
            forgotten = list(self._deleted)
            # A log that is moved meanwhile, to or from `unopened`, is in one of them, or in both.
            before = self.unopened.copy()
            logs = list(self.logs.copy().items())
            unopened = (before | self.unopened).items()
            flushed = {key: each.known.recovery_point for key, each in unopened}
            flushed |= {key: log.high_watermark for key, log in logs}
            starts = {
                key: start for key, each in unopened if (start := each.known.log_start_offset) > 0
            }
            starts |= {
                key: log.log_start_offset
                for key, log in logs
                if log.log_start_offset > log.segments[0].base_offset
            }
            try:
                self._log_starts.write(starts)
                self._recovery_points.write(flushed)
                self._high_watermarks.write(flushed)
                self._cleaned.write(self.cleaned_until.copy())
            except OSError as cause:
                raise StorageFailed(f"checkpoints cannot be written: {cause}") from cause
            self._deleted.difference_update(forgotten)

    def close(self) -> None:
        """Close every log; after a clean close of all, the next start needs no recovery.

        Raises:
            StorageFailed: a log could not be closed; the others are closed.
        """
        try:
            failures = [failed for log in self.logs.values() if (failed := _closed(log))]
            self.write_checkpoints()
            if failures:
                raise failures[0]
            if not all(each.is_unowned for each in self.unopened.values()):
                return  # the next start recovers all logs, also these
            replace_file(self.path / CLEAN_MARKER_NAME, CLEAN_MARKER)
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock without closing the logs, like a killed process."""
        os.close(self._lock_descriptor)

    def _create(self, new: NewLog) -> PartitionLog:
        folder = self.path / f"{new.topic}-{new.partition}"
        if (new.topic, new.partition) in self._deleted:
            # With the old log's recovery point, recovery would drop records of the new log.
            self.write_checkpoints()
        try:
            loaded = create_folder(folder, new.topic_id)
        except OSError as cause:
            raise StorageFailed(f"{folder.name} cannot be created: {cause}") from cause
        return PartitionLog(folder, new.topic, new.partition, new.config, loaded)

    def _config_of(
        self,
        folder: Path,
        key: TopicPartition,
        owner_of: Callable[[UUID], Owner | None],
        unreadable: Collection[str],
    ) -> LogConfig | None:
        """Return the settings of a folder's log; None if it is not to be opened.

        Raises:
            StorageFailed: metadata of its topic is unreadable.
        """
        if not has_records(folder) and not has_topic_id(folder):
            # The creation was interrupted; the log is created again if a topic needs it.
            shutil.rmtree(folder)
            return None
        topic_id = read_topic_id(folder)
        if topic_id is None:
            _log.warning("skipped folder %s: it has no topic id", folder.name)
            return None
        owner = owner_of(topic_id)
        if owner is None and key[0] in unreadable:
            raise StorageFailed(f"{folder.name} is not opened: metadata of its topic is unreadable")
        if owner is None:
            _log.info("removed folder %s: its topic was deleted", folder.name)
            shutil.rmtree(rename_to_delete(folder, key))
            return None
        if owner.topic != key[0]:
            _log.warning("skipped folder %s: it belongs to topic %s", folder.name, owner.topic)
            return None
        return owner.config

    def _load_folder(
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

    def _remove_clean_marker(self) -> bool:
        marker = self.path / CLEAN_MARKER_NAME
        if not marker.exists():
            return False
        # From here on the logs may change, so the marker must not exist after a crash.
        marker.unlink()
        sync_directory(self.path)
        return True


def _not_opened(folder: Path, cause: Exception) -> StorageFailed:
    return StorageFailed(f"{folder.name} cannot be opened: {cause}")


def _closed(log: PartitionLog) -> StorageFailed | None:
    try:
        log.close()
    except StorageFailed as failed:
        return failed
    return None
