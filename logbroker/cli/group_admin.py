"""Administration of consumer groups on any broker that speaks Kafka's protocol."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
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
        with _coordinator_of(group):
            found = self._client.describe_consumer_groups(
                [group], request_timeout=REQUEST_TIMEOUT_S
            )[group].result()
        return describe_group_answer(found)

    def committed(self, group: str) -> dict[TopicAndPartition, int]:
        """Return the committed offset of each partition that has one."""
        asked = ConsumerGroupTopicPartitions(group)
        with _coordinator_of(group):
            futures = self._client.list_consumer_group_offsets(
                [asked], request_timeout=REQUEST_TIMEOUT_S
            )
            return committed_offsets(
                _without_errors(futures[group].result().topic_partitions)
            ).offsets

    def commit(self, group: str, offsets: Mapping[TopicAndPartition, int]) -> None:
        """Set offsets of a group without members."""
        topic_partitions = [PartitionOffset(*tp, offset) for tp, offset in offsets.items()]
        asked = ConsumerGroupTopicPartitions(group, topic_partitions)
        with _coordinator_of(group):
            futures = self._client.alter_consumer_group_offsets(
                [asked], request_timeout=REQUEST_TIMEOUT_S
            )
            _without_errors(futures[group].result().topic_partitions)

    def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        with _coordinator_of(group):
            self._client.delete_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)[
                group
            ].result()


@contextmanager
def _coordinator_of(group: str) -> Iterator[None]:
    """Raise CommandRefused if the coordinator, and not the cluster, does not answer."""
    try:
        yield
    except KafkaException as exception:
        if exception.args[0].name() not in UNREACHABLE:
            raise
        raise CommandRefused(
            f"no coordinator answers for group {group!r} within {REQUEST_TIMEOUT_S:g} s"
        ) from exception


def _without_errors(topic_partitions: Sequence[PartitionOffset]) -> Sequence[PartitionOffset]:
    for tp in topic_partitions:
        if tp.error is not None:
            raise KafkaException(tp.error)
    return topic_partitions
