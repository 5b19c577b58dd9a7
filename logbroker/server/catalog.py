"""The topics of this broker: registry entry, log folders and served partitions, kept in step.

Order makes a crash harmless. A topic is registered before its folders exist (a missing folder
is made at the next start), and marked as deleting before they are renamed (a deletion that was
cut short is ended at the next start). A folder that no topic owns is reported and left alone.
"""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from logbroker.config import BrokerConfig, LogConfig, apply_topic_settings
from logbroker.errors import InvalidConfig, InvalidPartitions, StorageFailed
from logbroker.registry.local import LocalRegistry
from logbroker.registry.topic import Topic
from logbroker.server.loop import SocketLoop
from logbroker.server.partition import Partition, Partitions
from logbroker.server.workers import Workers
from logbroker.storage.log_directory import LogDirectory
from logbroker.storage.segment import LOG_SUFFIX

log = logging.getLogger("logbroker.catalog")


class Catalog:
    """Creates, grows, configures and deletes topics, each durable when the call returns."""

    def __init__(
        self,
        config: BrokerConfig,
        registry: LocalRegistry,
        logs: LogDirectory,
        partitions: Partitions,
        loop: SocketLoop,
        deleters: Workers,
    ) -> None:
        self.registry = registry
        self._config = config
        self._logs = logs
        self._partitions = partitions
        self._loop = loop
        self._deleters = deleters

    def open_all(self) -> None:
        """Serve every registered topic and end deletions that were cut short."""
        for topic in self.registry.deleting():
            self._end_deletion(topic.name)
        for topic in self.registry.topics.values():
            self._serve(topic, range(topic.partitions))
        served = {(partition.topic.name, partition.log.partition) for partition in self._partitions}
        for name, number in self._logs.logs.keys() - served:
            log.warning("left alone: folder %s-%d belongs to no topic", name, number)

    def log_config(self, topic: Topic) -> LogConfig:
        """The settings of a topic's logs: the broker's defaults with the topic's own on top."""
        return apply_topic_settings(self._config.topic_defaults, topic.settings)

    def check_settings(self, settings: Mapping[str, str]) -> None:
        """Let pass settings that this broker can keep.

        Raises:
            InvalidConfig: one is unknown, out of range, or allows batches no request can carry.
        """
        config = apply_topic_settings(self._config.topic_defaults, settings)
        if config.max_message_bytes > self._config.request_bytes_max:
            raise InvalidConfig(
                f"max.message.bytes is {config.max_message_bytes}; allowed is up to "
                f"{self._config.request_bytes_max}, the largest request of this broker"
            )

    def create(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Topic | None:
        """Create a topic; none when only validated.

        Raises:
            InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidConfig: see the registry.
        """
        self._check_partitions(name, partitions)
        self.check_settings(settings)
        if validate_only:
            self.registry.check_new_topic(name, partitions, settings)
            return None
        with _disk_errors_as_refusals():
            topic = self.registry.create_topic(name, partitions, settings)
            try:
                self._serve(topic, range(partitions))
            except StorageFailed:
                # A topic without its folders would be named in metadata and served by nobody.
                self.delete(name)
                raise
        log.info("created topic=%s partitions=%d id=%s", name, partitions, topic.topic_id)
        return topic

    def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Raise the partition count of a topic.

        Raises:
            UnknownTopicOrPartition: no such topic.
            InvalidPartitions: the count does not rise, or the broker has no room for it.
        """
        topic = self.registry.topic(name)
        if partitions <= topic.partitions:
            raise InvalidPartitions(
                f"{name} has {topic.partitions} partitions; {partitions} would be no more"
            )
        self._check_partitions(name, partitions - topic.partitions)
        if validate_only:
            return
        with _disk_errors_as_refusals():
            grown = self.registry.grow_topic(name, partitions)
            for partition in self._partitions.of_topic(name):
                partition.topic = grown
            self._serve(grown, range(topic.partitions, partitions))
        log.info("grew topic=%s partitions=%d", name, partitions)

    def change_settings(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace a topic's own settings; the next append of each log follows them.

        Raises:
            UnknownTopicOrPartition: no such topic.
            InvalidConfig: a setting is unknown or out of range.
        """
        with _disk_errors_as_refusals():
            topic = self.registry.change_settings(name, settings)
        config = self.log_config(topic)
        for partition in self._partitions.of_topic(name):
            partition.topic = topic
            partition.log.config = config
        log.info("configured topic=%s settings=%s", name, dict(settings))

    def delete(self, name: str) -> None:
        """Delete a topic: its partitions are closed at once.

        The files go after `file_delete_delay_s`, off the loop's thread.

        Raises:
            UnknownTopicOrPartition: no such topic.
        """
        with _disk_errors_as_refusals():
            self.registry.begin_deletion(name)
            self._partitions.remove_topic(name)
            self._end_deletion(name)
        log.info("deleted topic=%s", name)

    def remove_files(self, paths: Iterable[Path]) -> None:
        """Unlink renamed files and folders after `file_delete_delay_s`."""
        doomed = list(paths)
        if not doomed:
            return
        due_s = self._loop.now_s + self._config.file_delete_delay_s
        self._loop.call_at(due_s, lambda: self._deleters.run(lambda: _remove(doomed), _report))

    def _end_deletion(self, name: str) -> None:
        self.remove_files(self._logs.delete(name))
        self.registry.end_deletion(name)

    def _check_partitions(self, name: str, more: int) -> None:
        room = self._config.partitions_max - len(self._partitions)
        if more > room:
            raise InvalidPartitions(
                f"{name} asks for {more} more partitions; this broker has room for {room}"
            )

    def _serve(self, topic: Topic, numbers: Iterable[int]) -> None:
        config = self.log_config(topic)
        for number in numbers:
            partition_log = self._logs.logs.get((topic.name, number))
            if partition_log is None:
                partition_log = self._logs.create(topic.name, number, config)
            self._partitions.add(Partition(topic, partition_log))


@contextmanager
def _disk_errors_as_refusals() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFailed(f"the registry or a log folder cannot be written: {error}") from error


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            for segment in path.glob(f"*{LOG_SUFFIX}*"):
                _give_back(segment)
            shutil.rmtree(path, ignore_errors=True)
        else:
            _give_back(path)
            path.unlink(missing_ok=True)


def _give_back(path: Path) -> None:
    """Give a segment's blocks back here, off the loop's thread.

    Whoever still has it open would else pay for that with its last close: a third of a second
    for some hundred megabytes. A reader that is so slow finds its connection closed.
    """
    if LOG_SUFFIX in path.suffixes and path.exists():
        os.truncate(path, 0)


def _report(result: Exception | None) -> None:
    if result is not None:
        log.error("a deleted log's files stay on disk: %s", result)
