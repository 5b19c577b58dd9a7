"""The Kafka client of lookups."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ListOffsetsResultInfo,
    PartitionMetadata,
)

from app.log.client_errors import CLIENT_ERRORS
from app.log.error_text import public_text
from app.log.errors import LogUnavailable, TopicMissing
from logbroker.client.admin import log_position

CONNECT_S: Final = 1.0
"""How long the first use waits for a broker, at most."""


class LookupClient:
    """An admin client, created at first use. Thread-safe.

    `properties` are the operator's, such as those of TLS and SASL. After `silence_ms` without an
    answer it drops the broker of its metadata request: it prefers the previous broker, so a
    hanging one would be tried each time.

    Offsets of a topic are looked up only after `metadata` or `partitions` has returned the topic.
    Otherwise `list_offsets` looks up the leaders itself, and crashes the process if metadata of
    another lookup arrives meanwhile (librdkafka 2.16: two threads run the lookup of the leaders,
    and one frees it).
    """

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, Any], silence_ms: int
    ) -> None:
        # Errors that a caller can handle are returned with the answers.
        self._properties: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": CLIENT_ERRORS.report_error,
            "socket.timeout.ms": silence_ms,
            "allow.auto.create.topics": False,
            **properties,
        }
        self._lock = threading.Lock()
        self._made: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        """The client; connected if a broker answers."""
        with self._lock:
            if self._made is None:
                self._made = _connected(AdminClient(self._properties))
            return self._made

    def metadata(self, topic: str | None, timeout_s: float) -> ClusterMetadata:
        """Return brokers and a topic, or all topics, with the leaders known now; creates none.

        Raises:
            KafkaException: no broker answers.
        """
        found: ClusterMetadata = self.admin.list_topics(topic, timeout_s)
        return found

    def partitions(self, topic: str, timeout_s: float) -> Mapping[int, PartitionMetadata]:
        """Return the partitions of a topic, by number.

        Raises:
            TopicMissing: the topic does not exist.
            LogUnavailable: the log does not answer.
        """
        try:
            found = self.metadata(topic, timeout_s).topics[topic]
        except KafkaException as refusal:
            raise self.unavailable(topic, refusal.args[0]) from refusal
        if found.error is None:
            return found.partitions
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(f"topic {topic}: {found.error.str()}")
        raise self.unavailable(topic, found.error)

    def found(self, topic: str, future: "Future[ListOffsetsResultInfo]") -> "ListOffsetsResultInfo":
        """Return the answer of `list_offsets` for a partition of a topic.

        Raises:
            LogUnavailable: the leader does not answer.
        """
        try:
            info = future.result()
        except KafkaException as refusal:
            raise self.unavailable(topic, refusal.args[0]) from refusal
        if log_position(info) is None:
            raise LogUnavailable("the leader of a partition does not answer")
        return info

    def unavailable(self, topic: str, error: KafkaError) -> LogUnavailable:
        """Log what the client reported, and return the error for callers."""
        self.log_errors()
        return LogUnavailable(f"topic {topic}: {public_text(error)}")

    def log_errors(self) -> None:
        """Log the errors of connections that occurred since the last call."""
        self.admin.poll(0)


def check_led(partitions: Mapping[int, PartitionMetadata], number: int) -> None:
    """Raise LogUnavailable if a partition does not exist or has no leader."""
    found = partitions.get(number)
    if found is None:
        raise LogUnavailable(f"partition {number} does not exist")
    if found.leader < 0:
        raise LogUnavailable(f"partition {number} has no leader")


def _connected(admin: AdminClient) -> AdminClient:
    """The client, once a broker has answered it, or after `CONNECT_S`.

    If librdkafka looks up a leader before it has a connection, it sometimes sends the request only
    after three seconds.
    """
    with suppress(KafkaException):
        admin.describe_cluster(request_timeout=CONNECT_S).result()
    return admin
