"""Opens, resigns and deletes this broker's partitions as the cluster's views require.

Partitions change only when a view is applied. So requests to this broker and to other brokers
take the same path, and a crash in between is repaired at the next start: the view names the
missing folders, and the folders whose topic was deleted.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import UUID

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
from logbroker.server.membership import KnownTopics, Step
from logbroker.server.partition import Partition, Partitions
from logbroker.storage.log_directory import CreatedLogs, LogDirectory, NewLog
from logbroker.storage.partition_log import PartitionLog
from logbroker.topic_settings import apply_topic_settings

log = logging.getLogger("logbroker.leadership")

PARTITIONS_PER_TURN: Final = 200
"""The maximum of partitions of a view that are applied in one turn of the loop, in some 5 ms."""


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


@dataclass(frozen=True, slots=True)
class _DiskChanges:
    """The folders that a view requires to be renamed and created, and the result of that."""

    deleted: dict[UUID, tuple[Topic, list[int]]] = field(default_factory=dict)
    """By topic id: the topic, and its partitions with a folder."""
    missing: list[NewLog] = field(default_factory=list)
    renamed: list[tuple[Topic, list[Path]]] = field(default_factory=list)
    created: CreatedLogs = field(default_factory=dict)


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

    A view is applied in parts: first what it no longer has is closed, then another thread renames
    and creates folders, which may take seconds, and then what the view has is opened.

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
        self._changes = PartitionChanges()
        self._changed: Sequence[tuple[Topic, LogConfig]] = ()
        self._disk = _DiskChanges()

    def apply_view(self, view: ClusterView) -> Step:
        """Apply a view; calls `on_configured` for added and changed partitions.

        Meanwhile requests for partitions that are not opened yet are rejected as without a leader.
        """
        before = self._partitions.view
        self._changes, self._changed, self._disk = PartitionChanges(), (), _DiskChanges()
        leaders_may_differ = view.brokers != before.brokers
        has_topics = view.topics is not before.topics or view.unreadable != before.unreadable
        if has_topics:
            yield from self._close_topics(view)
        if has_topics or leaders_may_differ:
            yield lambda: self._prepare_topics(view, before, leaders_may_differ)
        self._partitions.view = view
        yield from self._open_topics(view)
        self._changed, self._disk = (), _DiskChanges()
        if self._changes:
            log.info(
                "leading partitions=%d added=%d resigned=%d deleted=%d",
                len(self._partitions),
                self._changes.added,
                self._changes.resigned,
                self._changes.deleted,
            )

    def _prepare_topics(
        self, view: ClusterView, before: ClusterView, leaders_may_differ: bool
    ) -> None:
        """Find the topics that differ, rename the folders of deleted ones and create new ones."""
        names = view.topics if leaders_may_differ else view.topics.changed_since(before.topics)
        self._changed = [
            (topic, log_config(self._config, topic))
            for name in names
            if (topic := view.topics.get(name)) is not None
            and (leaders_may_differ or before.topics.get(name) is not topic)
        ]
        self._disk.missing.extend(
            NewLog(topic.name, number, topic.topic_id, config)
            for topic, config in self._changed
            for number in range(topic.partitions)
            if self._logs.lacks(topic.name, number) and self._is_leader(view, topic, number)
        )
        self._change_disk(self._disk)

    def _open_topics(self, view: ClusterView) -> Iterator[None]:
        for topic, folders in self._disk.renamed:
            self._changes.deleted += len(folders)
            self._files.schedule(folders, log_config(self._config, topic).file_delete_delay_ms)
        places = (
            (topic, number, config)
            for topic, config in self._changed
            for number in range(topic.partitions)
        )
        for count, (topic, number, config) in enumerate(places, 1):
            self._apply_partition(view, topic, number, config)
            if count % PARTITIONS_PER_TURN == 0:
                yield

    def reopen(self, name: str, number: int, now_ms: int) -> Step:
        """Open, or create, the log of a led partition that failed before.

        Until now, a log that rejects appends since a flush failed was read. It is closed first,
        because its recovery changes its files.
        """
        topic = self._partitions.view.topics.get(name)
        partition = self._partitions.find(name, number)
        if partition is not None and isinstance(failure := partition.log.failure, StorageFailed):
            self._logs.set_aside(partition.log, failure)
            self._partitions.remove(name, number)
            self._partitions.add_failed(partition.topic, number, failure)
            self._on_closed(partition, failure)
        if topic is None or not self._partitions.is_offline(name, number):
            return
        config = log_config(self._config, topic)
        wanted = NewLog(name, number, topic.topic_id, config)
        opened: list[PartitionLog | StorageFailed] = []
        yield lambda: opened.append(self._logs.open_again(wanted, now_ms))
        for each in opened:
            if isinstance(each, PartitionLog):
                self._logs.add(each)
                self._lead(topic, number, config)
                log.info("opened partition=%s-%d after a failure", name, number)

    def _close_topics(self, view: ClusterView) -> Iterator[None]:
        """Resign the topics with unreadable metadata, and close the deleted ones."""
        topics = self._known.update(view)
        if topics:
            # Requests that wait for a deleted topic are answered now: it is unknown.
            before = self._partitions.view
            gone = {topic.name for topic in topics}
            self._partitions.view = replace(before, topics=before.topics.without(gone))
        unreadable = list(self._known.unreadable.values())
        close = chain(
            (partial(self._delete, topic, n) for topic in topics for n in range(topic.partitions)),
            (
                partial(self._resign, topic, n)
                for topic in unreadable
                for n in range(topic.partitions)
            ),
        )
        for count, close_partition in enumerate(close, 1):
            close_partition()
            if count % PARTITIONS_PER_TURN == 0:
                yield

    def _change_disk(self, disk: _DiskChanges) -> None:
        for topic, numbers in disk.deleted.values():
            try:
                disk.renamed.append((topic, self._logs.rename_removed(topic.name, numbers)))
            except StorageFailed as failure:
                log.error("folders are kept until restart topic=%s reason=%s", topic.name, failure)
        if disk.missing:
            disk.created.update(self._logs.create_all(disk.missing))

    def _is_leader(self, view: ClusterView, topic: Topic, number: int) -> bool:
        return view.leader(topic, number) == self._config.broker_id

    def _apply_partition(
        self, view: ClusterView, topic: Topic, number: int, config: LogConfig
    ) -> None:
        partition = self._partitions.find(topic.name, number)
        key = topic.name, number
        created = self._disk.created.get(key)
        if created is None and (unopened := self._logs.unopened.get(key)) is not None:
            created = unopened.failure
        if isinstance(created, PartitionLog):
            self._logs.add(created)
        if not self._is_leader(view, topic, number):
            self._resign(topic, number)
        elif isinstance(created, StorageFailed):
            log.error("cannot open partition=%s-%d reason=%s", topic.name, number, created)
            self._partitions.add_failed(topic, number, created)
        elif partition is None:
            self._lead(topic, number, config)
        else:
            partition.topic = topic
            if partition.log.config != config:
                partition.log.config = config
                self._on_configured(partition)

    def _lead(self, topic: Topic, number: int, config: LogConfig) -> None:
        partition_log = self._logs.logs[topic.name, number]
        partition_log.config = config
        partition = Partition(topic, partition_log, self._partitions.traffic_of(topic.name))
        self._partitions.add(partition)
        self._changes.added += 1
        self._on_configured(partition)

    def _resign(self, topic: Topic, number: int) -> None:
        partition = self._partitions.remove(topic.name, number)
        if partition is not None:
            self._changes.resigned += 1
            reason = f"this broker no longer leads {partition}"
            self._on_closed(partition, NotLeaderOrFollower(reason))

    def _delete(self, topic: Topic, number: int) -> None:
        """Close a partition, whose folder is renamed afterwards if this broker has its log."""
        partition = self._partitions.remove(topic.name, number)
        if partition is not None:
            self._on_closed(partition, UnknownTopicOrPartition(f"{partition} was deleted"))
        if self._logs.remove(topic.name, number):
            self._disk.deleted.setdefault(topic.topic_id, (topic, []))[1].append(number)
        if number == topic.partitions - 1:
            self._partitions.remove_traffic(topic.name)
