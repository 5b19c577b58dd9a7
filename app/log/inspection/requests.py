"""The requests of an inspection to brokers; every answer is waited for until a deadline."""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from app.config import Settings
from app.log.errors import LogUnavailable, NotInLog
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import Gaps
from app.log.lookup_client import LookupClient
from logbroker.client.admin import LogPosition, TopicAndPartition, log_position

T = TypeVar("T")

_SILENCE_MS: Final = 2_000
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Topic names in Kafka; the client rejects some others."""


class InspectionRequests:
    """Sends requests to brokers. Thread-safe.

    Methods that return futures send at once, so that many requests can be in flight together;
    `wait_for` returns an answer.
    """

    def __init__(self, settings: Settings) -> None:
        properties = {"client.id": "rewind-inspector", **settings.kafka_properties}
        self._client = LookupClient(settings.bootstrap_servers, properties, _SILENCE_MS)

    def metadata(self, deadline: Deadline) -> ClusterMetadata:
        """Return brokers, and all topics that the user may describe.

        Raises:
            LogUnavailable: no broker answers.
        """
        return self._metadata(None, deadline)

    def topic(self, name: str, deadline: Deadline) -> TopicMetadata:
        """Return one topic; its `error` is set if it cannot be described.

        Raises:
            NotInLog: the topic does not exist.
            LogUnavailable: no broker answers.
        """
        if _NAME.fullmatch(name):
            topic = self._metadata(name, deadline).topics[name]
            if topic.error is None or topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                return topic
        raise NotInLog(f"topic {name!r} does not exist")

    def _metadata(self, name: str | None, deadline: Deadline) -> ClusterMetadata:
        try:
            return self._client.metadata(name, deadline.request_timeout_s)
        except KafkaException:
            # The client chooses a broker; another one may answer.
            try:
                return self._client.metadata(name, deadline.request_timeout_s)
            except KafkaException as refusal:
                self._client.log_errors()
                reason = refusal.args[0].str()
                raise LogUnavailable(f"metadata request failed: {reason}") from refusal

    def offsets(
        self,
        topic_partitions: Iterable[TopicAndPartition],
        spec: OffsetSpec,
        deadline: Deadline,
        *,
        is_committed: bool = False,
    ) -> "Mapping[TopicPartition, Future[ListOffsetsResultInfo]]":
        """Look up an offset in each partition, for `positions_of`.

        `metadata` or `topic` has returned the partitions before, with leaders.

        With `is_committed`, the end is the start of the first open transaction.
        """
        requested = {TopicPartition(*tp): spec for tp in topic_partitions}
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        return (
            self._client.admin.list_offsets(
                requested, isolation_level=level, request_timeout=deadline.request_timeout_s
            )
            if requested
            else {}
        )

    def configs(
        self, topics: Sequence[str], deadline: Deadline
    ) -> "dict[str, Future[dict[str, ConfigEntry]]]":
        """Look up the settings of topics."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        answers = self._client.admin.describe_configs(
            resources, request_timeout=deadline.request_timeout_s
        )
        return {resource.name: answer for resource, answer in answers.items()}

    def groups(self, deadline: Deadline) -> "Future[ListConsumerGroupsResult]":
        """List all groups that the user may describe, and the errors of brokers."""
        return self._client.admin.list_consumer_groups(request_timeout=deadline.request_timeout_s)

    def descriptions(
        self, groups: Sequence[str], deadline: Deadline
    ) -> "dict[str, Future[ConsumerGroupDescription]]":
        """Look up state and members of groups."""
        if not groups:
            return {}
        return self._client.admin.describe_consumer_groups(
            list(groups), request_timeout=deadline.request_timeout_s
        )

    def committed(
        self, groups: Sequence[str], deadline: Deadline
    ) -> "dict[str, Future[ConsumerGroupTopicPartitions]]":
        """Look up the committed offsets of groups."""
        admin = self._client.admin
        answers: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
        for group in groups:
            requested = [ConsumerGroupTopicPartitions(group)]
            answers |= admin.list_consumer_group_offsets(
                requested, request_timeout=deadline.request_timeout_s
            )
        return answers


def wait_for(future: "Future[T]", figure: str, deadline: Deadline, gaps: Gaps) -> T | None:
    """Return an answer; None, with a gap of this figure, if it fails or is late."""
    try:
        return future.result(deadline.left_s)
    except KafkaException as refusal:
        gaps.add(figure, refusal.args[0].str())
    except TimeoutError:
        gaps.add(figure, "no answer in time")
    return None


def positions_of(
    futures: "Mapping[TopicPartition, Future[ListOffsetsResultInfo]]",
    figure: str,
    deadline: Deadline,
    gaps: Gaps,
) -> dict[TopicAndPartition, LogPosition]:
    """Return positions by partition; a partition without an answer is omitted, with a gap."""
    positions: dict[TopicAndPartition, LogPosition] = {}
    for tp, future in futures.items():
        info = wait_for(future, figure, deadline, gaps)
        if info is None:
            continue
        position = log_position(info)
        if position is None:
            gaps.add(figure, f"the leader of {tp.topic}-{tp.partition} does not answer")
            continue
        positions[tp.topic, tp.partition] = position
    return positions
