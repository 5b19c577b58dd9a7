"""Looks up log start and end offsets, and offsets by timestamp, at the partition leaders."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, UNREACHABLE
from logbroker.client.admin import LogPosition, TopicAndPartition, log_position

_NO_LEADER: Final = frozenset(
    {
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        *UNREACHABLE,
    }
)
# Kafka before 3.0 cannot look up the newest timestamp.
_UNAVAILABLE: Final = _NO_LEADER | {"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"}


class LogPositions:
    """Looks up offsets of partitions."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def find(
        self, topic_partitions: Iterable[TopicAndPartition], specs: Sequence[OffsetSpec]
    ) -> list[dict[TopicAndPartition, LogPosition | None]]:
        """Return the result of each spec for each partition; None if no such record exists.

        All lookups are sent at once. Partitions whose leader did not answer are missing. The
        leaders are looked up before: the client crashes if metadata arrives while `list_offsets`
        does so itself (librdkafka 2.16).

        Raises:
            KafkaException: a broker returns an error.
        """
        asked = [TopicPartition(*tp) for tp in topic_partitions]
        if not asked:
            return [{} for _ in specs]
        self._client.list_topics(timeout=REQUEST_TIMEOUT_S)
        futures = [
            self._client.list_offsets(dict.fromkeys(asked, spec), request_timeout=REQUEST_TIMEOUT_S)
            for spec in specs
        ]
        return [_positions(each) for each in futures]


def _positions(
    futures: "Mapping[TopicPartition, Future[ListOffsetsResultInfo]]",
) -> dict[TopicAndPartition, LogPosition | None]:
    positions: dict[TopicAndPartition, LogPosition | None] = {}
    for asked, future in futures.items():
        answer = _answer(future)
        position = None if answer is None else log_position(answer)
        if position is not None:
            positions[asked.topic, asked.partition] = position if position.has_record else None
    return positions


def _answer(future: "Future[ListOffsetsResultInfo]") -> "ListOffsetsResultInfo | None":
    try:
        return future.result()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.name() in _UNAVAILABLE:
            return None
        raise
