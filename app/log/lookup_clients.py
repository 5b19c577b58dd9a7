"""The two Kafka clients of lookups, each for what the other does badly."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from app.log.client_errors import CLIENT_ERRORS

_LEADERS_AGE_MS: Final = 1_000

_CONNECT_S: Final = 1.0
"""How long the first use waits for a broker, at most."""


class LookupClients:
    """An admin client and a consumer, created at first use. Thread-safe.

    `properties` are the operator's, such as those of TLS and SASL. After `silence_ms` without an
    answer a client drops the broker of its metadata request: it prefers the previous broker, so a
    hanging one would be tried each time.
    """

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, Any], group: str, silence_ms: int
    ) -> None:
        # Errors that a caller can handle are returned with the answers.
        self._properties: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": CLIENT_ERRORS.report_error,
            "socket.timeout.ms": silence_ms,
            **properties,
        }
        self._group = group
        self._lock = threading.Lock()
        self._made: tuple[AdminClient, Consumer] | None = None

    @property
    def admin(self) -> AdminClient:
        """For offsets, settings and groups."""
        return self._both()[0]

    @property
    def consumer(self) -> Consumer:
        """For topics. It joins no group; the client requires a group id.

        Any broker answers a consumer. The admin client sends metadata requests to the controller,
        which may be the one broker that is down, or creates the topic by requesting it.
        """
        return self._both()[1]

    def _both(self) -> tuple[AdminClient, Consumer]:
        with self._lock:
            if self._made is None:
                # By default the admin client caches the leaders for a quarter of an hour, and sends
                # requests to dead ones.
                admin = {**self._properties, "metadata.max.age.ms": _LEADERS_AGE_MS}
                consumer = {**self._properties, "group.id": self._group}
                self._made = _connected(AdminClient(admin)), Consumer(consumer)
            return self._made


def _connected(admin: AdminClient) -> AdminClient:
    """The client, once a broker has answered it, or after `_CONNECT_S`.

    If librdkafka looks up a leader before it has a connection, it sometimes sends the request only
    after three seconds.
    """
    with suppress(KafkaException):
        admin.describe_cluster(request_timeout=_CONNECT_S).result()
    return admin
