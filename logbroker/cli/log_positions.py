"""Where logs begin and end, asked of whoever leads them."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs re-export nothing
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, UNREACHABLE

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""

EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST: Final = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

_NOTHING: Final = -1

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


class FoundRecord(NamedTuple):
    """What a look-up by time found."""

    offset: int
    timestamp_ms: int


class LogPositions:
    """Looks offsets up; a partition whose leader went away meanwhile is left out of an answer.

    Every method raises KafkaException when a broker refuses.
    """

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset of each log that can be read."""
        return {place: found.offset for place, found in self._found(places, EARLIEST).items()}

    def latest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The offset behind the last record of each log that can be read."""
        return {place: found.offset for place, found in self._found(places, LATEST).items()}

    def first_since(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, FoundRecord]:
        """In each log the first record that is not older; none where all are."""
        return self._records(places, OffsetSpec.for_timestamp(timestamp_ms))

    def newest(self, places: Iterable[Place]) -> dict[Place, FoundRecord]:
        """In each log the record with the greatest timestamp, which need not be the last."""
        return self._records(places, NEWEST)

    def _records(self, places: Iterable[Place], spec: OffsetSpec) -> dict[Place, FoundRecord]:
        return {
            place: FoundRecord(found.offset, found.timestamp)
            for place, found in self._found(places, spec).items()
            if found.offset != _NOTHING
        }

    def _found(
        self, places: Iterable[Place], spec: OffsetSpec
    ) -> "Mapping[Place, ListOffsetsResultInfo]":
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}
        futures = self._client.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
        answers = {(each.topic, each.partition): _answer(futures[each]) for each in futures}
        return {place: answer for place, answer in answers.items() if answer is not None}


def _answer(future: "Future[ListOffsetsResultInfo]") -> "ListOffsetsResultInfo | None":
    try:
        return future.result()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.name() in _UNKNOWABLE:
            return None
        raise
