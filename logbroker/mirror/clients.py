"""What the mirror's Kafka clients are told, and what they complain of."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError

from logbroker.client.librdkafka import ErrorReporter

_log: Final = logging.getLogger(__name__)

CLIENT_LOG: Final = logging.getLogger("logbroker.mirror.librdkafka")
"""Where clients write lines of their own."""

UNDER_WAY_MAX: Final = 100_000
UNDER_WAY_KB_MAX: Final = 128 * 1024
"""Records, and kilobytes of them, that the destination has not acknowledged yet."""

BATCH_BYTES: Final = 1_000_000
"""The largest batch that is made of several records, before compression."""

BATCH_HEADROOM: Final = 1_024
"""How much smaller batches are than a topic takes, for what belongs to no record."""

RECORD_BYTES_MAX: Final = 100_000_000
"""The client refuses nothing by size: what a topic takes is the topic's to say."""

_COMMON: Final[Mapping[str, Any]] = {
    "client.id": "logbroker-mirror",
    "socket.keepalive.enable": True,
    # Complaints come to the callback, which can tell which are new.
    "log_level": 2,
    # How long a last request waits for a broker that is gone; by default it would be a minute.
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}


def consumer_settings(servers: str, group: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """For the client that reads the source; `properties` win over what is chosen here."""
    return {
        **_COMMON,
        "bootstrap.servers": servers,
        "group.id": group,
        # A member keeps its partitions while others come and go.
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # An offset that is not there any more is to be told, before anything else is read.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        # How long the partitions of a mirror that died wait for another one.
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 1_000,
        # As often the client looks for new partitions.
        "topic.metadata.refresh.interval.ms": 5_000,
        "queued.min.messages": 50_000,
        "queued.max.messages.kbytes": 32_768,
        # The default, a second, is how long a queue that was full stays unfilled.
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        **properties,
    }


def producer_settings(
    servers: str,
    properties: Mapping[str, str],
    *,
    compression: str = "snappy",
    batch_bytes: int = BATCH_BYTES,
) -> dict[str, Any]:
    """For the client that writes to the destination; `properties` win, as above.

    A record waits for ever: were one given up, those behind it could not go on without a gap.
    Every other failure ends the client, before it writes anything behind the record that failed.

    Source: librdkafka, CONFIGURATION.md, `enable.gapless.guarantee`, which does not cover records
    that are given up by time, so none are.
    """
    return {
        **_COMMON,
        "bootstrap.servers": servers,
        "acks": "all",
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,
        "message.timeout.ms": 0,
        "compression.type": compression,
        "message.max.bytes": RECORD_BYTES_MAX,
        "batch.size": batch_bytes,
        "batch.num.messages": 10_000,
        "linger.ms": 10,
        "queue.buffering.max.messages": UNDER_WAY_MAX,
        "queue.buffering.max.kbytes": UNDER_WAY_KB_MAX,
        **properties,
    }


def admin_settings(servers: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """For the client that asks of topics and makes them."""
    return {**_COMMON, "bootstrap.servers": servers, **properties}


class Complaints:
    """Logs what clients of one cluster complain of, each reason once a minute, and counts all.

    A client goes on trying by itself; why it reaches no broker comes here alone.
    """

    def __init__(self, cluster: str, count: Callable[[str], None]) -> None:
        """`cluster` is how a reader of the log knows it; `count` is given the error's name."""
        self._count = count
        self._told = ErrorReporter(
            partial(_log.warning, "client complains cluster=%s reason=%s", cluster)
        )

    def note(self, error: KafkaError) -> None:
        """Take one complaint: an `error_cb` of any number of clients."""
        self._count(error.name())
        self._told.note(error)
