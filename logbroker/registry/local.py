"""The registry of a broker that runs alone: one file in its data directory.

The file holds the JSON of `logbroker.registry.document` and is replaced as a whole with every
change: written beside itself (`.new`), flushed, renamed, and the rename flushed. A crash leaves
the old or the new document, never a mixture, and at most a `.new` that the next change overwrites.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

from logbroker.config import LogConfig, apply_topic_settings
from logbroker.errors import (
    ConfigurationError,
    InvalidPartitions,
    StorageFailed,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from logbroker.registry.document import ClusterMetadata, format_metadata, parse_metadata
from logbroker.registry.topic import Topic, check_collision, check_topic_name


class LocalRegistry:
    """Topics, the cluster's id and producer ids; a change is durable when its call returns.

    Every change may raise StorageFailed: then the registry goes on as if it had not been asked.
    """

    def __init__(self, path: Path, metadata: ClusterMetadata) -> None:
        self._path = path
        self._take(metadata)

    @classmethod
    def open(cls, path: Path, broker_id: int) -> "LocalRegistry":
        """The registry in the file `path`, which is made when it is not there.

        Raises:
            ConfigurationError: the file belongs to another broker id, is of another version,
                or cannot be read or made.
        """
        try:
            if not path.exists():
                return cls._create(path, broker_id)
            metadata = parse_metadata(path.read_bytes())
        except (OSError, ValueError, StorageFailed) as error:
            raise ConfigurationError(f"registry {path} cannot be opened: {error}") from error
        if metadata.broker_id != broker_id:
            raise ConfigurationError(
                f"broker_id is {broker_id}; {path} belongs to broker {metadata.broker_id}"
            )
        return cls(path, metadata)

    @classmethod
    def _create(cls, path: Path, broker_id: int) -> "LocalRegistry":
        path.parent.mkdir(parents=True, exist_ok=True)
        registry = cls(path, ClusterMetadata(_new_cluster_id(), broker_id, 0, {}))
        registry._store(registry._metadata)
        return registry

    @property
    def cluster_id(self) -> str:
        """The cluster's id: 16 random bytes in base64url, as Kafka has them."""
        return self._metadata.cluster_id

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Every topic by its name, but for those being deleted."""
        return self._visible

    def topic(self, name: str) -> Topic:
        """The topic of this name.

        Raises:
            UnknownTopicOrPartition: there is none.
        """
        topic = self._visible.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """The topic of this id.

        Raises:
            UnknownTopicId: there is none, or no more.
        """
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return topic

    def deleting(self) -> list[Topic]:
        """Topics whose deletion has begun and not ended; after a crash the caller ends it."""
        return [topic for topic in self._metadata.topics.values() if topic.deleting]

    def check_new_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Refuse what `create_topic` would refuse, and change nothing.

        Raises:
            InvalidTopic: the name is not allowed, or differs from another in `.` and `_` alone.
            TopicAlreadyExists: a topic has this name, or its deletion has not ended.
            InvalidPartitions: there would be fewer than one.
            InvalidConfig: a setting is unknown or out of its range.
        """
        check_topic_name(name)
        if name in self._metadata.topics:
            raise TopicAlreadyExists(f"topic {name!r} exists already")
        check_collision(name, self._metadata.topics)
        if partitions < 1:
            raise InvalidPartitions(f"{name}: partitions is {partitions}; allowed is 1 and more")
        apply_topic_settings(LogConfig(), settings)

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        """A new topic under a new id; refused as `check_new_topic` says."""
        self.check_new_topic(name, partitions, settings)
        return self._put(Topic(name, uuid4(), partitions, MappingProxyType(dict(settings))))

    def begin_deletion(self, name: str) -> Topic:
        """Hide the topic: the first durable half of a deletion, before its folders go.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
        """
        return self._put(replace(self.topic(name), deleting=True))

    def end_deletion(self, name: str) -> None:
        """Forget a topic whose deletion has begun: the second half, after its folders went."""
        topics = dict(self._metadata.topics)
        assert topics.pop(name).deleting, f"the deletion of {name} has not begun"
        self._store(replace(self._metadata, topics=topics))

    def grow_topic(self, name: str, partitions: int) -> Topic:
        """The topic with more partitions.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            InvalidPartitions: it has as many already.
        """
        topic = self.topic(name)
        if partitions <= topic.partitions:
            raise InvalidPartitions(
                f"{name}: partitions is {partitions}; allowed is above {topic.partitions}"
            )
        return self._put(replace(topic, partitions=partitions))

    def change_settings(self, name: str, settings: Mapping[str, str]) -> Topic:
        """The topic with `settings` in the place of all that it had.

        Raises:
            UnknownTopicOrPartition: there is no such topic.
            InvalidConfig: a setting is unknown or out of its range.
        """
        topic = self.topic(name)
        apply_topic_settings(LogConfig(), settings)
        return self._put(replace(topic, settings=MappingProxyType(dict(settings))))

    def allocate_producer_ids(self, count: int) -> range:
        """`count` producer ids that nobody was given before.

        They are taken durably before they are returned; a crash wastes them.
        """
        first = self._metadata.next_producer_id
        self._store(replace(self._metadata, next_producer_id=first + count))
        return range(first, first + count)

    def _put(self, topic: Topic) -> Topic:
        topics = {**self._metadata.topics, topic.name: topic}
        self._store(replace(self._metadata, topics=topics))
        return topic

    def _store(self, metadata: ClusterMetadata) -> None:
        """Make `metadata` durable, then the one in force."""
        try:
            _replace_file(self._path, format_metadata(metadata))
        except OSError as error:
            raise StorageFailed(f"registry {self._path} cannot be written: {error}") from error
        self._take(metadata)

    def _take(self, metadata: ClusterMetadata) -> None:
        visible = {name: topic for name, topic in metadata.topics.items() if not topic.deleting}
        self._metadata = metadata
        self._visible = MappingProxyType(visible)
        self._by_id = {topic.topic_id: topic for topic in visible.values()}


def _new_cluster_id() -> str:
    # Kafka draws again when an id begins with a dash, which a command line takes for an option.
    while (text := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _replace_file(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _flush_directory(path.parent)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
