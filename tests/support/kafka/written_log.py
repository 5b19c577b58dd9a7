"""A log that stock clients write, and the rows that a reader must return."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.processes.waiting import DEADLINE_S, until


class Row(NamedTuple):
    """A record with the columns of Spark's Kafka connector; `timestamp` in ms since 1970."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int  # noqa: N815
    headers: tuple[tuple[str, bytes | None], ...] | None


class Sent(NamedTuple):
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


class WrittenLog:
    """Topics of a cluster that several tests can share."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def make_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic. Settings have Kafka's names with `_` instead of dots."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        # A deleted topic may exist for a moment longer.
        until(lambda: topic not in self._topics(), f"{topic} is gone")
        new = NewTopic(topic, partitions, 1, config=config)
        self._admin.create_topics([new])[topic].result(DEADLINE_S)
        until(lambda: topic in self._topics(), f"{topic} is there")

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(DEADLINE_S)
        until(lambda: len(self._topics()[topic].partitions) == total, "the partitions are there")

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(DEADLINE_S)
        until(lambda: topic not in self._topics(), f"{topic} is gone")

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records below `offset`, as retention does."""
        place = TopicPartition(topic, partition, offset)
        self._admin.delete_records([place])[place].result(DEADLINE_S)

    def publish(self, topic: str, records: Iterable[Sent], **settings: Any) -> list[Row]:
        """Write records in order and return the acknowledged rows."""
        rows: list[Row] = []
        properties = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, **properties})
        for each in records:
            produce(producer, topic, each, rows)
        assert producer.flush(DEADLINE_S) == 0
        return rows

    def _topics(self) -> Any:
        return self._admin.list_topics(timeout=DEADLINE_S).topics


def produce(producer: Producer, topic: str, sent: Sent, rows: list[Row]) -> None:
    """Send a record. Its row is added to `rows` once it is acknowledged."""

    def delivered(error: Any, message: Message) -> None:
        assert error is None, error
        place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
        kind, timestamp = message.timestamp()
        is_append_time = int(kind == TIMESTAMP_LOG_APPEND_TIME)
        headers = tuple(sent.headers) or None
        rows.append(Row(sent.key, sent.value, *place, timestamp, is_append_time, headers))

    producer.produce(
        topic,
        sent.value,
        sent.key,
        sent.partition,
        timestamp=sent.timestamp,
        headers=list(sent.headers),
        on_delivery=delivered,
    )
