"""The configuration of the mirror's Kafka clients, and the log of their errors."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer

from logbroker.client.librdkafka import ErrorReporter
from logbroker.client.properties import (
    BINDING_PROPERTIES,
    BOOTSTRAP_PROPERTIES,
    CONSUMER_PROPERTIES,
    PLACEHOLDER_SERVERS,
    PRODUCER_PROPERTIES,
    PropertyRules,
)

_log: Final = logging.getLogger(__name__)

CLIENT_LOG: Final = logging.getLogger("logbroker.mirror.librdkafka")
"""The logger for librdkafka's own lines."""

IN_FLIGHT_MAX: Final = 100_000
IN_FLIGHT_KB_MAX: Final = 128 * 1024
"""Records, and kilobytes of them, that the destination has not acknowledged yet."""

BATCH_BYTES: Final = 1_000_000
"""The largest batch of several records, before compression."""

BATCH_HEADROOM: Final = 1_024
"""The part of a topic's limit that is left to the batch header."""

RECORD_BYTES_MAX: Final = 100_000_000
"""The client rejects nothing by size: the topic at the destination decides."""

_COMMON: Final[Mapping[str, Any]] = {
    "client.id": "logbroker-mirror",
    "socket.keepalive.enable": True,
    # Errors go to the callback, which suppresses repeats.
    "log_level": 2,
    # How long a last request waits for a dead broker; the default is a minute.
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}


def consumer_settings(servers: str, group: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the source's consumer; `properties` override the choices here."""
    return {
        **_COMMON,
        "bootstrap.servers": servers,
        "group.id": group,
        # A member keeps its partitions while others join and leave.
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A missing offset has to be reported before anything else is read.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        # How long the partitions of a dead mirror wait for another one.
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 1_000,
        # How often the client looks for new partitions.
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
    """Return the settings of the destination's producer; `properties` override the choices here.

    A record never times out: the records after it could not be sent without a gap. Every other
    failure ends the client before it writes anything after the failed record.

    Source: librdkafka, CONFIGURATION.md, `enable.gapless.guarantee`, which does not cover records
    that time out, so none do.
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
        "queue.buffering.max.messages": IN_FLIGHT_MAX,
        "queue.buffering.max.kbytes": IN_FLIGHT_KB_MAX,
        **properties,
    }


def admin_settings(servers: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a client that looks up and creates topics."""
    return {**_COMMON, "bootstrap.servers": servers, **properties}


def error_callback(cluster: str, count: Callable[[str], None]) -> Callable[[KafkaError], None]:
    """Return an `error_cb` for the clients of a cluster.

    It calls `count` with the name of each error, and logs each reason once a minute: it is the only
    way to learn why a client reaches no broker.
    """
    reporter = ErrorReporter(partial(_log.warning, "client error cluster=%s reason=%s", cluster))

    def record_error(error: KafkaError) -> None:
        count(error.name())
        reporter.report_error(error)

    return record_error


_COPYING: Final = (
    *("compression.type", "compression.codec"),
    *("message.max.bytes", "message.copy.max.bytes", "batch.size"),
    "topic.blacklist",
)

DECIDED: Final = (
    BOOTSTRAP_PROPERTIES
    | PRODUCER_PROPERTIES
    | CONSUMER_PROPERTIES
    | BINDING_PROPERTIES
    | frozenset(_COPYING)
)
"""Properties that the mirror sets itself, by each of their librdkafka names."""


def _make_clients(properties: Mapping[str, Any]) -> None:
    Producer(producer_settings(PLACEHOLDER_SERVERS, properties))
    Consumer(consumer_settings(PLACEHOLDER_SERVERS, "check", properties))


RULES: Final = PropertyRules("the mirror", DECIDED, _make_clients)
