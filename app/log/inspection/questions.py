"""What brokers are asked, by a stock client; every answer is waited for until a deadline."""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar

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
from app.log.inspection.gaps import Gaps
from app.log.lookup_clients import LookupClients

T = TypeVar("T")

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST: Final = OffsetSpec.earliest()
LATEST: Final = OffsetSpec.latest()

FIRST: Final = OffsetSpec.for_timestamp(0)
"""The first record there is, with its time: the broker looks at one batch, and sends none."""

YOUNGEST: Final = OffsetSpec.max_timestamp()
"""The record with the latest time, which need not be the last one; Kafka before 3.0 cannot tell."""


def since(timestamp_ms: int) -> OffsetSpec:
    """The first record that is not older; the time is 0 or later."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp_ms)
    return spec


_NO_SUCH_RECORD: Final = -1
_SILENCE_MS: Final = 2_000
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""What Kafka takes for a topic's name; the client does not take all others."""


class Position(NamedTuple):
    """An offset, and its record's time where the question was for a record; -1 is none."""

    offset: int
    timestamp_ms: int


class LogQuestions:
    """Asks brokers. Safe to use from any thread.

    Questions that return futures are asked at once, so that many can be under way together; what
    comes of them is taken with `answer`.
    """

    def __init__(self, settings: Settings) -> None:
        properties = {"client.id": "rewind-inspector", **settings.kafka_properties}
        self._clients = LookupClients(
            settings.bootstrap_servers, properties, "rewind-inspector", _SILENCE_MS
        )

    def metadata(self, deadline: Deadline) -> ClusterMetadata:
        """Brokers and all topics that the user may see.

        Raises:
            LogUnavailable: no broker answers.
        """
        return self._metadata(None, deadline)

    def topic(self, name: str, deadline: Deadline) -> TopicMetadata:
        """One topic; its `error` tells what keeps it from being seen.

        Raises:
            NotInLog: there is none of this name.
            LogUnavailable: no broker answers.
        """
        if _NAME.fullmatch(name):
            topic = self._metadata(name, deadline).topics[name]
            if topic.error is None or topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                return topic
        raise NotInLog(f"the log has no topic {name!r}")

    def _metadata(self, name: str | None, deadline: Deadline) -> ClusterMetadata:
        try:
            return self._told(name, deadline)
        except KafkaException:
            # The client asks a broker of its choice; another may answer.
            try:
                return self._told(name, deadline)
            except KafkaException as refusal:
                self._clients.consumer.poll(0)  # it may say why
                reason = refusal.args[0].str()
                raise LogUnavailable(f"topics are not told: {reason}") from refusal

    def _told(self, name: str | None, deadline: Deadline) -> ClusterMetadata:
        told: ClusterMetadata = self._clients.consumer.list_topics(name, deadline.asking_s)
        return told

    def offsets(
        self,
        places: Iterable[Place],
        spec: OffsetSpec,
        deadline: Deadline,
        *,
        is_committed: bool = False,
    ) -> "Mapping[TopicPartition, Future[ListOffsetsResultInfo]]":
        """Where each log has what `spec` asks for; for `found`. Leaders must be there.

        With `is_committed`, the end is where the first transaction begins that is still open.
        """
        asked = {TopicPartition(*place): spec for place in places}
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        return (
            self._clients.admin.list_offsets(
                asked, isolation_level=level, request_timeout=deadline.asking_s
            )
            if asked
            else {}
        )

    def configs(
        self, topics: Sequence[str], deadline: Deadline
    ) -> "dict[str, Future[dict[str, ConfigEntry]]]":
        """The settings of topics, by topic."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        answers = self._clients.admin.describe_configs(resources, request_timeout=deadline.asking_s)
        return {resource.name: answer for resource, answer in answers.items()}

    def groups(self, deadline: Deadline) -> "Future[ListConsumerGroupsResult]":
        """All groups that the user may see, and the errors of brokers that did not tell theirs."""
        return self._clients.admin.list_consumer_groups(request_timeout=deadline.asking_s)

    def described(
        self, groups: Sequence[str], deadline: Deadline
    ) -> "dict[str, Future[ConsumerGroupDescription]]":
        """State and members of groups, by group."""
        if not groups:
            return {}
        return self._clients.admin.describe_consumer_groups(
            list(groups), request_timeout=deadline.asking_s
        )

    def committed(
        self, groups: Sequence[str], deadline: Deadline
    ) -> "dict[str, Future[ConsumerGroupTopicPartitions]]":
        """The positions of groups, by group."""
        admin = self._clients.admin
        answers: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
        for group in groups:
            asked = [ConsumerGroupTopicPartitions(group)]
            answers |= admin.list_consumer_group_offsets(asked, request_timeout=deadline.asking_s)
        return answers


def answer(future: "Future[T]", figure: str, deadline: Deadline, gaps: Gaps) -> T | None:
    """What was asked for; None, with a gap of this figure, where nobody tells it in time."""
    try:
        return future.result(deadline.left_s)
    except KafkaException as refusal:
        gaps.note(figure, refusal.args[0].str())
    except TimeoutError:
        gaps.note(figure, "no answer in time")
    return None


def found(
    futures: "Mapping[TopicPartition, Future[ListOffsetsResultInfo]]",
    figure: str,
    deadline: Deadline,
    gaps: Gaps,
) -> dict[Place, Position]:
    """What each log has; those whose leader does not tell are left out, with a gap."""
    positions: dict[Place, Position] = {}
    for place, future in futures.items():
        told = answer(future, figure, deadline, gaps)
        if told is None:
            continue
        if told.offset < _NO_SUCH_RECORD:
            # librdkafka: an offset that is none, and no error, for a leader that did not answer.
            gaps.note(figure, f"the leader of {place.topic}-{place.partition} does not answer")
            continue
        positions[place.topic, place.partition] = Position(told.offset, told.timestamp)
    return positions
