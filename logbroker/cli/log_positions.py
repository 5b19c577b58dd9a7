"""Looks up log start and end offsets, and offsets by timestamp, at the partition leaders."""

import socket
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    BrokerMetadata,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, UNREACHABLE
from logbroker.client.admin import LogPosition, TopicAndPartition, leaders_of, log_position

_CONNECT_S: Final = 1.0

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
        does so itself (librdkafka 2.16). It keeps a core busy until the timeout if a leader
        refuses connections, so that is found out before, too.

        Raises:
            KafkaException: a broker returns an error.
        """
        wanted = list(topic_partitions)
        asked = [TopicPartition(*tp) for tp in self._answerable(wanted)] if wanted else []
        if not asked:
            return [{} for _ in specs]
        futures = [
            self._client.list_offsets(dict.fromkeys(asked, spec), request_timeout=REQUEST_TIMEOUT_S)
            for spec in specs
        ]
        return [_positions(each) for each in futures]

    def _answerable(self, wanted: Iterable[TopicAndPartition]) -> list[TopicAndPartition]:
        """The partitions whose leader does not refuse connections."""
        metadata = self._client.list_topics(timeout=REQUEST_TIMEOUT_S)
        leaders = leaders_of(metadata)
        refusing = {
            number for number, broker in metadata.brokers.items() if _refuses_connections(broker)
        }
        return [tp for tp in wanted if leaders.get(tp) not in refusing]


def _refuses_connections(broker: BrokerMetadata) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), _CONNECT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False  # the client finds out
    return False


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
