"""Questions and orders about topics, to any broker that speaks Kafka's protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs re-export nothing
    ConfigResource,
    ConfigSource,
    NewTopic,
    TopicDescription,
)

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, admin_client
from logbroker.cli.log_positions import (
    EARLIEST,
    LATEST,
    NEWEST,
    LogPositions,
    Place,
    Position,
    since,
)
from logbroker.cli.log_sizes import log_sizes
from logbroker.cli.rfc3339 import format_time

BROKER_DEFAULT: Final = -1
"""Leaves the count of partitions or of replicas to the broker (KIP-464)."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition; what only its leader knows is None while there is none.

    Offsets in [earliest, latest) can be read. `size_bytes` is what the leader has on disk.
    `first_time` is the timestamp of the first record, `newest_time` the greatest of all records,
    both None where there is no record.
    """

    partition: int
    leader: int | None
    replicas: list[int]
    earliest: int | None
    latest: int | None
    size_bytes: int | None
    first_time: str | None
    newest_time: str | None


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic with those of its settings that are no defaults."""

    name: str
    topic_id: str
    partitions: list[PartitionState]
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Logs:
    """What the leaders say of their logs."""

    sizes: Mapping[Place, int]
    earliest: Mapping[Place, Position | None]
    latest: Mapping[Place, Position | None]
    first: Mapping[Place, Position | None]
    newest: Mapping[Place, Position | None]


class TopicAdmin:
    """A client for topics; every call waits for its answer.

    Every method raises KafkaException when the broker refuses or none can be reached.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = admin_client(bootstrap_servers)
        self._positions = LogPositions(self._client)

    def create(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic; `partitions` may be `BROKER_DEFAULT`."""
        topic = NewTopic(name, partitions, BROKER_DEFAULT, config=settings)
        self._client.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[name].result()

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._client.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name].result()

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has, sorted by name."""
        topics = self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: len(topics[name].partitions) for name in sorted(topics)}

    def describe(self, names: Sequence[str]) -> list[TopicState]:
        """The state of each named topic, in their order."""
        if not names:
            return []
        topics = self._descriptions(names)
        settings = self._changed_settings(names)
        logs = self._logs(topics)
        return [
            TopicState(
                name=topic.name,
                topic_id=str(topic.topic_id),
                partitions=_partition_states(topic, logs),
                settings=settings[topic.name],
            )
            for topic in topics
        ]

    def _descriptions(self, names: Sequence[str]) -> list[TopicDescription]:
        # Metadata alone would create a topic that is not there; this request does not.
        futures = self._client.describe_topics(
            TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S
        )
        return [futures[name].result() for name in names]

    def _logs(self, topics: Sequence[TopicDescription]) -> _Logs:
        led_by: dict[int, set[Place]] = {}
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader is not None:
                    led_by.setdefault(partition.leader.id, set()).add((topic.name, partition.id))
        led = [place for places in led_by.values() for place in places]
        sizes = log_sizes(self._bootstrap_servers, led_by)
        return _Logs(sizes, *self._positions.find(led, (EARLIEST, LATEST, since(0), NEWEST)))

    def _changed_settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        futures = self._client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        return {
            resource.name: {
                name: entry.value
                for name, entry in sorted(future.result().items())
                if entry.source != ConfigSource.DEFAULT_CONFIG.value
            }
            for resource, future in futures.items()
        }


def _partition_states(topic: TopicDescription, logs: _Logs) -> list[PartitionState]:
    states = []
    for partition in sorted(topic.partitions, key=lambda partition: int(partition.id)):
        place = (topic.name, partition.id)
        states.append(
            PartitionState(
                partition=partition.id,
                leader=partition.leader.id if partition.leader else None,
                replicas=[replica.id for replica in partition.replicas],
                earliest=_offset(logs.earliest.get(place)),
                latest=_offset(logs.latest.get(place)),
                size_bytes=logs.sizes.get(place),
                first_time=_time(logs.first.get(place)),
                newest_time=_time(logs.newest.get(place)),
            )
        )
    return states


def _offset(position: Position | None) -> int | None:
    return None if position is None else position.offset


def _time(position: Position | None) -> str | None:
    return None if position is None else format_time(position.timestamp_ms)
