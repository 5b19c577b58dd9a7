"""The partitions of this broker, kept in step with what the cluster has agreed on.

Following a view is the only way in which partitions come and go. So this broker's own requests
and those of others take the same way, and a crash in between is made up for at the next start:
the view names the folders that are missing, and those whose topic is gone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from logbroker.config import BrokerConfig, LogConfig, apply_topic_settings
from logbroker.errors import (
    InvalidConfig,
    NotLeaderOrFollower,
    RequestRefused,
    StorageFailed,
    UnknownTopicOrPartition,
)
from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic
from logbroker.server.file_removal import FileRemoval
from logbroker.server.known_topics import KnownTopics
from logbroker.server.partition import Partition, Partitions
from logbroker.storage.checkpoints import TopicPartition
from logbroker.storage.log_directory import LogDirectory, NewLog

log = logging.getLogger("logbroker.catalog")


def log_config(config: BrokerConfig, topic: Topic) -> LogConfig:
    """The settings of a topic's logs: the broker's defaults with the topic's own on top.

    Settings that are no good here (written by a newer broker, say) must not end this one: the
    defaults stand in for them.
    """
    try:
        return apply_topic_settings(config.topic_defaults, topic.settings)
    except InvalidConfig as problem:
        log.error("topic=%s has the defaults, as its settings are refused: %s", topic.name, problem)
        return config.topic_defaults


Failures = Mapping[TopicPartition, StorageFailed]
"""Why logs could not be made."""


@dataclass(slots=True)
class Changes:
    """How many partitions one view has brought and taken."""

    led: int = 0
    resigned: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.led or self.resigned or self.removed)


class Catalog:
    """Leads, resigns, configures and removes partitions as the cluster's views say.

    A resigned partition's log stays open, since nobody else can have it; led again, it is a
    new `Partition` over the same log.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogDirectory,
        partitions: Partitions,
        files: FileRemoval,
        on_led: Callable[[Partition], None],
        on_closed: Callable[[Partition, RequestRefused], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._partitions = partitions
        self._files = files
        self._on_led = on_led
        self._on_closed = on_closed
        self._known = KnownTopics(partitions.view)

    def follow(self, view: ClusterView) -> None:
        """Take over what the cluster has agreed on; `on_led` hears of new settings, too."""
        before, self._partitions.view = self._partitions.view, view
        changes = Changes()
        if view.topics is not before.topics or view.unreadable != before.unreadable:
            self._let_go(view, changes)
        leaders_may_differ = view.brokers != before.brokers
        changed = [
            (topic, log_config(self._config, topic))
            for topic in view.topics.values()
            if leaders_may_differ or before.topics.get(topic.name) is not topic
        ]
        failures = self._make_logs(changed)
        for topic, config in changed:
            self._follow_topic(topic, config, failures, changes)
        if changes:
            log.info(
                "leads partitions=%d more=%d resigned=%d removed=%d",
                len(self._partitions),
                changes.led,
                changes.resigned,
                changes.removed,
            )

    def _let_go(self, view: ClusterView, changes: Changes) -> None:
        """Resign the topics that nobody can read now, and remove those that are gone."""
        for topic in self._known.follow(view):
            self._remove(topic, changes)
        for topic in self._known.unreadable.values():
            for number in range(topic.partitions):
                self._resign(topic, number, changes)

    def _make_logs(self, topics: Sequence[tuple[Topic, LogConfig]]) -> Failures:
        """Make the logs that are to be led and not there; why not, where that failed."""
        wanted = [
            NewLog(topic.name, number, topic.topic_id, config)
            for topic, config in topics
            for number in range(topic.partitions)
            if (topic.name, number) not in self._logs.logs and self._is_leader(topic, number)
        ]
        return self._logs.create_all(wanted) if wanted else {}

    def _is_leader(self, topic: Topic, number: int) -> bool:
        return self._partitions.view.leader(topic, number) == self._config.broker_id

    def _follow_topic(
        self, topic: Topic, config: LogConfig, failures: Failures, changes: Changes
    ) -> None:
        for number in range(topic.partitions):
            partition = self._partitions.find(topic.name, number)
            if not self._is_leader(topic, number):
                self._resign(topic, number, changes)
            elif (failure := failures.get((topic.name, number))) is not None:
                log.error("cannot lead partition=%s-%d reason=%s", topic.name, number, failure)
                self._partitions.add_unusable(topic, number, failure)
            elif partition is None:
                self._lead(topic, number, config, changes)
            else:
                partition.topic = topic
                if partition.log.config != config:
                    partition.log.config = config
                    self._on_led(partition)

    def _lead(self, topic: Topic, number: int, config: LogConfig, changes: Changes) -> None:
        partition_log = self._logs.logs[topic.name, number]
        partition_log.config = config
        partition = Partition(topic, partition_log, self._partitions.traffic_of(topic.name))
        self._partitions.add(partition)
        changes.led += 1
        self._on_led(partition)

    def _resign(self, topic: Topic, number: int, changes: Changes) -> None:
        partition = self._partitions.remove(topic.name, number)
        if partition is not None:
            changes.resigned += 1
            self._on_closed(partition, NotLeaderOrFollower(f"{partition} is led here no longer"))

    def _remove(self, topic: Topic, changes: Changes) -> None:
        """Close a topic's partitions at once; the files go after `file_delete_delay_s`."""
        self._partitions.forget_traffic(topic.name)
        for number in range(topic.partitions):
            partition = self._partitions.remove(topic.name, number)
            if partition is not None:
                self._on_closed(partition, UnknownTopicOrPartition(f"{partition} was deleted"))
        try:
            folders = self._logs.delete(topic.name, range(topic.partitions))
        except StorageFailed as failure:
            log.error("folders stay until the next start topic=%s reason=%s", topic.name, failure)
            return
        changes.removed += len(folders)
        self._files.remove_later(folders)
