"""Where logs begin and end, asked of whoever leads them."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, UNREACHABLE

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST: Final = OffsetSpec.earliest()
"""The first offset that can be read."""

LATEST: Final = OffsetSpec.latest()
"""The offset behind the last record that can be read."""

NEWEST: Final = OffsetSpec.max_timestamp()
"""The record with the greatest timestamp, which need not be the last."""

_NO_RECORD: Final = -1

_LED_BY_NOBODY: Final = frozenset(
    {
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        *UNREACHABLE,
    }
)
# Kafka before 3.0 knows no look-up of the newest timestamp.
_UNKNOWABLE: Final = _LED_BY_NOBODY | {"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"}


class Position(NamedTuple):
    """An offset; `timestamp_ms` is its record's where the question was for a record."""

    offset: int
    timestamp_ms: int


def since(timestamp_ms: int) -> OffsetSpec:
    """The first record that is not older."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp_ms)
    return spec


class LogPositions:
    """Looks offsets up in logs."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def find(
        self, places: Iterable[Place], specs: Sequence[OffsetSpec]
    ) -> list[dict[Place, Position | None]]:
        """What each log has for each question, all asked at once; None if it has no such record.

        A log whose leader did not answer is left out.

        Raises:
            KafkaException: a broker refuses.
        """
        asked = [TopicPartition(*place) for place in places]
        if not asked:
            return [{} for _ in specs]
        futures = [
            self._client.list_offsets(dict.fromkeys(asked, spec), request_timeout=REQUEST_TIMEOUT_S)
            for spec in specs
        ]
        return [_positions(each) for each in futures]


def _positions(
    futures: "Mapping[TopicPartition, Future[ListOffsetsResultInfo]]",
) -> dict[Place, Position | None]:
    positions: dict[Place, Position | None] = {}
    for asked, future in futures.items():
        answer = _answer(future)
        # Where one leader of several does not answer, the client says so with an odd offset alone.
        if answer is not None and answer.offset >= _NO_RECORD:
            position = Position(answer.offset, answer.timestamp)
            positions[asked.topic, asked.partition] = (
                None if answer.offset == _NO_RECORD else position
            )
    return positions


def _answer(future: "Future[ListOffsetsResultInfo]") -> "ListOffsetsResultInfo | None":
    try:
        return future.result()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.name() in _UNKNOWABLE:
            return None
        raise
