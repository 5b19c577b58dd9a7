"""Requests about topics, to any broker that speaks Kafka's protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import NewTopic

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, admin_client, client_properties
from logbroker.cli.formats import format_time
from logbroker.cli.log_positions import LogPositions
from logbroker.client.admin import EARLIEST, LATEST, NEWEST, LogPosition, TopicAndPartition, since

if TYPE_CHECKING:
    from logbroker.cli.topic_facts import TopicFacts

PARTITIONS_MAX: Final = 100_000
"""The maximum that the client accepts."""

SIZES_TIMEOUT_S: Final = 5.0
"""How long a description waits for brokers that do not report the sizes of their logs."""

BROKER_DEFAULT: Final = -1
"""Leaves the count of partitions or of replicas to the broker (KIP-464)."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition; values that only a leader knows are None without one.

    Offsets in [earliest, latest) can be read. `size_bytes` is the disk usage at the leader.
    `first_time` is the timestamp of the first record, `newest_time` the greatest of all records;
    both are None without records.
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
    """One topic with its settings that differ from the defaults."""

    name: str
    topic_id: str | None
    partitions: list[PartitionState]
    settings: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Logs:
    """Positions and sizes of logs, as reported by their leaders."""

    sizes: Mapping[TopicAndPartition, int | None]
    earliest: Mapping[TopicAndPartition, LogPosition | None]
    latest: Mapping[TopicAndPartition, LogPosition | None]
    first: Mapping[TopicAndPartition, LogPosition | None]
    newest: Mapping[TopicAndPartition, LogPosition | None]


class TopicAdmin:
    """A blocking client for topics.

    Every method raises KafkaException if the broker returns an error or none is reachable.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client = admin_client(bootstrap_servers)

    def create(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic; `partitions` may be `BROKER_DEFAULT`."""
        topic = NewTopic(name, partitions, BROKER_DEFAULT, config=settings)
        self._client.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[name].result()

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._client.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name].result()

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic, sorted by name."""
        topics = self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: len(topics[name].partitions) for name in sorted(topics)}

    def describe(self, names: Sequence[str]) -> list[TopicState]:
        """Return the state of the named topics in order, or of all topics by name."""
        # It imports kafka-python, which takes as long as all imports of the other calls.
        from logbroker.cli.topic_facts import TopicFactsClient

        with TopicFactsClient(self._bootstrap_servers) as client:
            topics = client.describe(names or None)
            settings = client.changed_settings([topic.name for topic in topics])
        logs = self._logs(topics)
        return [
            TopicState(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=_partition_states(topic, logs),
                settings=settings[topic.name],
            )
            for topic in topics
        ]

    def _logs(self, topics: "Sequence[TopicFacts]") -> _Logs:
        from logbroker.client.raw import RawCluster, TopicPartition, log_sizes

        led = {
            TopicPartition(topic.name, number)
            for topic in topics
            for number, leader, _ in topic.partitions
            if leader is not None
        }
        positions = LogPositions(self._client).find(led, (EARLIEST, LATEST, since(0), NEWEST))
        properties = client_properties() | {"bootstrap.servers": self._bootstrap_servers}
        with RawCluster(properties, timeout_s=SIZES_TIMEOUT_S) as cluster:
            sizes = log_sizes(cluster, led).of
        return _Logs({(*tp,): size for tp, size in sizes.items()}, *positions)


def _partition_states(topic: "TopicFacts", logs: _Logs) -> list[PartitionState]:
    return [
        PartitionState(
            partition=number,
            leader=leader,
            replicas=replicas,
            earliest=_offset(logs.earliest.get((topic.name, number))),
            latest=_offset(logs.latest.get((topic.name, number))),
            size_bytes=logs.sizes.get((topic.name, number)),
            first_time=_time(logs.first.get((topic.name, number))),
            newest_time=_time(logs.newest.get((topic.name, number))),
        )
        for number, leader, replicas in topic.partitions
    ]


def _offset(position: LogPosition | None) -> int | None:
    return None if position is None else position.offset


def _time(position: LogPosition | None) -> str | None:
    return None if position is None else format_time(position.timestamp_ms)
