"""Questions and orders about topics, to any broker that speaks Kafka's protocol."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs re-export nothing
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

REQUEST_TIMEOUT_S: Final = 10.0

BROKER_DEFAULT: Final = -1
"""Leaves the count of partitions or of replicas to the broker (KIP-464)."""

EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: offsets in [earliest, latest) can be read; all unknown without a leader."""

    partition: int
    leader: int | None
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic with those of its settings that are no defaults."""

    name: str
    topic_id: str
    partitions: list[PartitionState]
    settings: dict[str, str]


class TopicAdmin:
    """A client for topics; every call waits for its answer.

    Every method raises KafkaException when the broker refuses or none can be reached.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        # librdkafka would log each attempt to connect; the exception says it once.
        silent = logging.getLogger(f"{__name__}.librdkafka")
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=silent)

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
        """The state of each named topic; at least one is named."""
        topics = self._descriptions(names)
        settings = self._changed_settings(names)
        earliest = self._offsets(topics, EARLIEST)
        latest = self._offsets(topics, LATEST)
        return [
            TopicState(
                name=topic.name,
                topic_id=str(topic.topic_id),
                partitions=_partition_states(topic, earliest, latest),
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

    def _offsets(self, topics: Sequence[TopicDescription], spec: OffsetSpec) -> Offsets:
        wanted = {
            TopicPartition(topic.name, partition.id): spec
            for topic in topics
            for partition in topic.partitions
            if partition.leader
        }
        futures = self._client.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
        return {
            (place.topic, place.partition): future.result().offset
            for place, future in futures.items()
        }

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


def _partition_states(
    topic: TopicDescription, earliest: Offsets, latest: Offsets
) -> list[PartitionState]:
    return [
        PartitionState(
            partition=partition.id,
            leader=partition.leader.id if partition.leader else None,
            earliest=earliest.get((topic.name, partition.id)),
            latest=latest.get((topic.name, partition.id)),
        )
        for partition in sorted(topic.partitions, key=lambda partition: int(partition.id))
    ]
