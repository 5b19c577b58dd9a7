"""Administration of consumer groups on any broker that speaks Kafka's protocol."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from logbroker.cli.admin_command import (
    REQUEST_TIMEOUT_S,
    UNREACHABLE,
    CommandRefused,
    admin_client,
)
from logbroker.cli.log_positions import LogPositions
from logbroker.client.admin import (
    DEAD,
    GROUP_STATES,
    GroupDescription,
    TopicAndPartition,
    committed_offsets,
    describe_group_answer,
    leaders_of,
)

MEMBERLESS: Final = frozenset({"Empty", DEAD})
"""States in which the offsets of a group may be changed."""

_Answer = TypeVar("_Answer")

_STARTING: Final = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
_STARTING_PAUSE_S: Final = 0.1
"""Between two requests to a coordinator that still loads its groups."""


class GroupListing(NamedTuple):
    """The state of each group; `problems` are the errors of brokers that did not list theirs."""

    states: dict[str, str]
    problems: list[str]


class GroupAdmin:
    """A client for consumer groups; every call waits for its answer.

    Every method raises KafkaException if a broker rejects a request or none can be reached, and
    CommandRefused if the coordinator of a group does not answer.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._client = admin_client(bootstrap_servers)
        self.positions = LogPositions(self._client)

    def leaders(self) -> dict[TopicAndPartition, int | None]:
        """Return every partition with its leader."""
        return leaders_of(self._client.list_topics(timeout=REQUEST_TIMEOUT_S))

    def listing(self) -> GroupListing:
        """Return every group with its state."""
        # The answer below does not show whether one broker is down or all of them.
        self.leaders()
        answer = self._client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        states = {each.group_id: GROUP_STATES[each.state] for each in answer.valid}
        problems = [error.str() for error in answer.errors]
        return GroupListing(states, problems)

    def describe(self, group: str) -> GroupDescription:
        """Return the state and members of a group; an unknown one is `DEAD` and has none."""

        def request() -> GroupDescription:
            answers = self._client.describe_consumer_groups(
                [group], request_timeout=REQUEST_TIMEOUT_S
            )
            return describe_group_answer(answers[group].result())

        return _ask_coordinator(group, request)

    def committed(self, group: str) -> dict[TopicAndPartition, int]:
        """Return the committed offset of each partition that has one."""
        asked = ConsumerGroupTopicPartitions(group)

        def request() -> dict[TopicAndPartition, int]:
            answers = self._client.list_consumer_group_offsets(
                [asked], request_timeout=REQUEST_TIMEOUT_S
            )
            return committed_offsets(_partitions_of(answers[group])).offsets

        return _ask_coordinator(group, request)

    def commit(self, group: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        """Set offsets of a group without members."""
        topic_partitions = [PartitionOffset(*tp, offset) for tp, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, topic_partitions)

        def request() -> None:
            answers = self._client.alter_consumer_group_offsets(
                [asked], request_timeout=REQUEST_TIMEOUT_S
            )
            _partitions_of(answers[group])

        _ask_coordinator(group, request)

    def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets."""

        def request() -> None:
            answers = self._client.delete_consumer_groups(
                [group], request_timeout=REQUEST_TIMEOUT_S
            )
            answers[group].result()

        _ask_coordinator(group, request)


def _ask_coordinator(group: str, request: Callable[[], _Answer]) -> _Answer:
    """Return the answer to a request, which is repeated while the coordinator loads its groups.

    Raises CommandRefused if the coordinator, and not the cluster, does not answer.
    """
    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return request()
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() in UNREACHABLE:
                raise CommandRefused(
                    f"no coordinator answers for group {group!r} within {REQUEST_TIMEOUT_S:g} s"
                ) from exception
            if error.code() not in _STARTING or time.monotonic() >= deadline_s:
                raise
        time.sleep(_STARTING_PAUSE_S)


def _partitions_of(answer: "Future[ConsumerGroupTopicPartitions]") -> Sequence[PartitionOffset]:
    """Return the partitions of an answer; raises KafkaException if one has an error."""
    topic_partitions = answer.result().topic_partitions or []
    for tp in topic_partitions:
        if tp.error is not None:
            raise KafkaException(tp.error)
    return topic_partitions
