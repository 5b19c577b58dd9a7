"""How much disk each partition takes, asked of whoever leads it: librdkafka has no such question.

Source: KIP-113, Kafka protocol guide, "DescribeLogDirs API".
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from kafka.protocol.admin.cluster import DescribeLogDirsRequest

from logbroker.client.errors import ClientError
from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.parsing.errors import AttemptFailed, ConnectionFailed, error_for_code
from logbroker.client.raw.parsing.metadata import BrokerAddress, TopicPartition
from logbroker.client.raw.retries import RetryTimer, retry
from logbroker.wire.error_codes import NONE

_Topic: Final = DescribeLogDirsRequest.DescribableLogDirTopic


class LogSizes(NamedTuple):
    """Bytes of each log at its leader, None where the leader does not tell of it.

    Partitions whose leader did not answer are left out; `problem` says why some are missing.
    """

    of: Mapping[TopicPartition, int | None]
    problem: str | None


def log_sizes(cluster: RawCluster, places: Iterable[TopicPartition]) -> LogSizes:
    """The size of each partition's log; replicas of it are not counted.

    It takes as long as the cluster's timeout, and what was told until then stays told.
    """
    wanted = frozenset(places)
    found: dict[TopicPartition, int | None] = {}
    patience = cluster.patience("asking for the sizes of logs")
    try:
        retry(patience, lambda: _ask_leaders(cluster, wanted - found.keys(), patience, found))
    except ClientError as error:
        return LogSizes(found, str(error))
    untold = sorted(place for place, size in found.items() if size is None)
    # Before version 3 of the answer, it is empty for who lacks the right.
    return LogSizes(found, f"the leader of {untold[0]} does not tell" if untold else None)


def _ask_leaders(
    cluster: RawCluster,
    places: frozenset[TopicPartition],
    patience: RetryTimer,
    found: dict[TopicPartition, int | None],
) -> None:
    """Put the sizes that can be told into `found`; fails where some could not."""
    failure: AttemptFailed | None = None
    for address, led in _by_leader(cluster, places).items():
        if not patience.left_s:
            raise failure or ConnectionFailed(f"{address} was not asked, for want of time")
        try:
            answer = cluster.ask(address, _request(led))
            found |= dict.fromkeys(led) | _sizes(answer)
        except AttemptFailed as each:
            failure = each
    if failure is not None:
        raise failure


def _by_leader(
    cluster: RawCluster, places: frozenset[TopicPartition]
) -> dict[BrokerAddress, list[TopicPartition]]:
    # Leaders move, and what is known of them may be of yesterday.
    cluster.topics({place.topic for place in places})
    by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
    for place in sorted(places):
        _, leader = cluster.leader(place)
        by_leader.setdefault(leader.address, []).append(place)
    return by_leader


def _request(places: Iterable[TopicPartition]) -> Any:
    topics = [
        _Topic(topic=topic, partitions=[place.partition for place in of_topic])
        for topic, of_topic in groupby(places, lambda place: place.topic)
    ]
    return DescribeLogDirsRequest(topics=topics)


def _sizes(answer: Any) -> dict[TopicPartition, int]:
    # Fields that the version lacks are None.
    for code in (answer.error_code, *(each.error_code for each in answer.results)):
        if code not in (None, NONE):
            raise error_for_code("the sizes of logs", code)
    return {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for each in answer.results
        for topic in each.topics
        for partition in topic.partitions
        # A log on its way to another disk of its broker is listed twice.
        if not partition.is_future_key
    }
