"""The disk size of partitions, requested from their leaders; librdkafka has no such API.

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
    """Bytes of each log at its leader; None if the leader does not report it.

    Partitions whose leader did not answer are missing; `problem` says why.
    """

    of: Mapping[TopicPartition, int | None]
    problem: str | None


def log_sizes(cluster: RawCluster, topic_partitions: Iterable[TopicPartition]) -> LogSizes:
    """Return the size of each partition's log, without replicas.

    Takes up to the cluster's timeout, and keeps the sizes received until then.
    """
    wanted = frozenset(topic_partitions)
    found: dict[TopicPartition, int | None] = {}
    timer = cluster.start_timer("asking for the sizes of logs")
    try:
        retry(timer, lambda: _request_sizes(cluster, wanted - found.keys(), timer, found))
    except ClientError as error:
        return LogSizes(found, str(error))
    missing = sorted(tp for tp, size in found.items() if size is None)
    # Before version 3, the response is empty for users without permission.
    return LogSizes(found, f"the leader of {missing[0]} reports no size" if missing else None)


def _request_sizes(
    cluster: RawCluster,
    topic_partitions: frozenset[TopicPartition],
    timer: RetryTimer,
    found: dict[TopicPartition, int | None],
) -> None:
    """Add the received sizes to `found`; raise if some requests failed."""
    by_leader, failure = _by_leader(cluster, topic_partitions)
    for address, led in by_leader.items():
        if not timer.remaining_s:
            raise failure or ConnectionFailed(f"timeout before the request to {address}")
        try:
            answer = cluster.request(address, _make_request(led))
            found |= dict.fromkeys(led) | _sizes(answer)
        except AttemptFailed as each:
            failure = each
    if failure is not None:
        raise failure


def _by_leader(
    cluster: RawCluster, topic_partitions: frozenset[TopicPartition]
) -> tuple[dict[BrokerAddress, list[TopicPartition]], AttemptFailed | None]:
    """Return the partitions of each leader, and the failure of one without a leader."""
    by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
    leaders = cluster.fetch_leaders(topic_partitions)
    for tp in sorted(leaders):
        by_leader.setdefault(leaders[tp].address, []).append(tp)
    leaderless = sorted(topic_partitions - leaders.keys())
    return by_leader, AttemptFailed(f"{leaderless[0]} has no leader") if leaderless else None


def _make_request(topic_partitions: Iterable[TopicPartition]) -> Any:
    topics = [
        _Topic(topic=topic, partitions=[tp.partition for tp in of_topic])
        for topic, of_topic in groupby(topic_partitions, lambda tp: tp.topic)
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
        # A log that moves to another disk of its broker is listed twice.
        if not partition.is_future_key
    }
