"""Opens, resigns and deletes this broker's partitions as the cluster's views require.

Partitions change only when a view is applied. So requests to this broker and to other brokers
take the same path, and a crash in between is repaired at the next start: the view names the
missing folders, and the folders whose topic was deleted.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from logbroker.config import BrokerConfig, LogConfig
from logbroker.errors import (
    InvalidConfig,
    NotLeaderOrFollower,
    RequestRefused,
    StorageFailed,
    UnknownTopicOrPartition,
)
from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic
from logbroker.server.housekeeping import FileDeletion
from logbroker.server.membership import KnownTopics
from logbroker.server.partition import Partition, Partitions
from logbroker.storage.checkpoints import TopicPartition
from logbroker.storage.log_directory import LogDirectory, NewLog
from logbroker.topic_settings import apply_topic_settings

log = logging.getLogger("logbroker.leadership")


def log_defaults(config: BrokerConfig) -> LogConfig:
    """Return the settings of a topic that has none of its own."""
    defaults, delay_ms = config.topic_defaults, int(config.file_delete_delay_s * 1000)
    if defaults.file_delete_delay_ms == delay_ms:
        return defaults
    return replace(defaults, file_delete_delay_ms=delay_ms)


def log_config(config: BrokerConfig, topic: Topic) -> LogConfig:
    """Return the settings of a topic's logs: the broker's defaults overridden by the topic's.

    Invalid settings (of a newer broker, for example) are ignored, so that this broker starts.
    """
    defaults = log_defaults(config)
    try:
        return apply_topic_settings(defaults, topic.settings)
    except InvalidConfig as problem:
        log.error("invalid settings are ignored topic=%s reason=%s", topic.name, problem)
    valid = defaults
    for name, value in topic.settings.items():
        with suppress(InvalidConfig):
            valid = apply_topic_settings(valid, {name: value})
    return valid


Failures = Mapping[TopicPartition, StorageFailed]
"""Why logs could not be created."""


@dataclass(slots=True)
class PartitionChanges:
    """The number of partitions that one view added, resigned and deleted."""

    added: int = 0
    resigned: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.resigned or self.deleted)


class PartitionLeadership:
    """Applies cluster views to the partitions of this broker.

    The log of a resigned partition stays open, since only this broker stores it. A partition
    that is led again is a new `Partition` with the same log.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogDirectory,
        partitions: Partitions,
        files: FileDeletion,
        on_configured: Callable[[Partition], None],
        on_closed: Callable[[Partition, RequestRefused], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._partitions = partitions
        self._files = files
        self._on_configured = on_configured
        self._on_closed = on_closed
        self._known = KnownTopics(partitions.view)

    def apply_view(self, view: ClusterView) -> None:
        """Apply a view; calls `on_configured` for added partitions and for changed settings."""
        before, self._partitions.view = self._partitions.view, view
        changes = PartitionChanges()
        if view.topics is not before.topics or view.unreadable != before.unreadable:
            self._close_topics(view, changes)
        leaders_may_differ = view.brokers != before.brokers
        changed = [
            (topic, log_config(self._config, topic))
            for topic in view.topics.values()
            if leaders_may_differ or before.topics.get(topic.name) is not topic
        ]
        failures = self._create_logs(changed)
        for topic, config in changed:
            self._apply_topic(topic, config, failures, changes)
        if changes:
            log.info(
                "leading partitions=%d added=%d resigned=%d deleted=%d",
                len(self._partitions),
                changes.added,
                changes.resigned,
                changes.deleted,
            )

    def _close_topics(self, view: ClusterView, changes: PartitionChanges) -> None:
        """Resign the topics with unreadable metadata, and delete the deleted ones."""
        for topic in self._known.update(view):
            self._delete(topic, changes)
        for topic in self._known.unreadable.values():
            for number in range(topic.partitions):
                self._resign(topic, number, changes)

    def _create_logs(self, topics: Sequence[tuple[Topic, LogConfig]]) -> Failures:
        """Create the missing logs of led partitions; returns the failures."""
        missing = [
            NewLog(topic.name, number, topic.topic_id, config)
            for topic, config in topics
            for number in range(topic.partitions)
            if (topic.name, number) not in self._logs.logs and self._is_leader(topic, number)
        ]
        return self._logs.create_all(missing) if missing else {}

    def _is_leader(self, topic: Topic, number: int) -> bool:
        return self._partitions.view.leader(topic, number) == self._config.broker_id

    def _apply_topic(
        self, topic: Topic, config: LogConfig, failures: Failures, changes: PartitionChanges
    ) -> None:
        for number in range(topic.partitions):
            partition = self._partitions.find(topic.name, number)
            if not self._is_leader(topic, number):
                self._resign(topic, number, changes)
            elif (failure := failures.get((topic.name, number))) is not None:
                log.error("cannot open partition=%s-%d reason=%s", topic.name, number, failure)
                self._partitions.add_failed(topic, number, failure)
            elif partition is None:
                self._lead(topic, number, config, changes)
            else:
                partition.topic = topic
                if partition.log.config != config:
                    partition.log.config = config
                    self._on_configured(partition)

    def _lead(
        self, topic: Topic, number: int, config: LogConfig, changes: PartitionChanges
    ) -> None:
        partition_log = self._logs.logs[topic.name, number]
        partition_log.config = config
        partition = Partition(topic, partition_log, self._partitions.traffic_of(topic.name))
        self._partitions.add(partition)
        changes.added += 1
        self._on_configured(partition)

    def _resign(self, topic: Topic, number: int, changes: PartitionChanges) -> None:
        partition = self._partitions.remove(topic.name, number)
        if partition is not None:
            changes.resigned += 1
            reason = f"this broker no longer leads {partition}"
            self._on_closed(partition, NotLeaderOrFollower(reason))

    def _delete(self, topic: Topic, changes: PartitionChanges) -> None:
        """Close a topic's partitions; their files are deleted after `file.delete.delay.ms`."""
        self._partitions.remove_traffic(topic.name)
        for number in range(topic.partitions):
            partition = self._partitions.remove(topic.name, number)
            if partition is not None:
                self._on_closed(partition, UnknownTopicOrPartition(f"{partition} was deleted"))
        try:
            folders = self._logs.delete(topic.name, range(topic.partitions))
        except StorageFailed as failure:
            log.error("folders are kept until restart topic=%s reason=%s", topic.name, failure)
            return
        changes.deleted += len(folders)
        self._files.schedule(folders, log_config(self._config, topic).file_delete_delay_ms)
