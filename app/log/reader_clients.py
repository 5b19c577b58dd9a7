"""The Kafka clients of readers of replays, kept between replays.

A new client connects and looks up leaders first, which takes five to thirty milliseconds.
"""

import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer

from app.log.client_errors import CLIENT_LOG

IDLE_MAX: Final = 2
"""Idle clients of a worker. Each takes 0.02 % of a core, and a connection to each broker that it
has read from."""

_OUTDATED_MAX: Final = 1_000


class ReaderClients:
    """Clients without partitions. Thread-safe; each client is for one reader at a time.

    `properties` are the operator's, such as those of TLS and SASL. Up to `idle_max` clients are
    kept.
    """

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, str] = {}, *, idle_max: int = 0
    ) -> None:
        self.properties = {**properties, "bootstrap.servers": bootstrap_servers}
        """The operator's properties, with the addresses of the log."""
        self._configuration = reader_configuration(bootstrap_servers, properties)
        self._idle_max = idle_max
        self._lock = threading.Lock()
        self._idle: list[Consumer] = []

    def take(self) -> Consumer:
        """An idle client, or a new one."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is None:
            return Consumer(self._configuration, logger=CLIENT_LOG)
        # Errors of connections that were lost meanwhile.
        kept.consume(_OUTDATED_MAX, 0)
        return kept

    def put_back(self, client: Consumer, *, is_usable: bool) -> None:
        """Return a client; it is closed if it had an error or enough others are idle."""
        if is_usable:
            client.unassign()
            with self._lock:
                if len(self._idle) < self._idle_max:
                    self._idle.append(client)
                    return
        client.close()

    def close(self) -> None:
        """Close idle clients, and others when they are returned."""
        with self._lock:
            self._idle_max = 0
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()


def reader_configuration(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the client's configuration; `properties` override the choices here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "rewind-reader",
        # The client requires a group id, although no group is joined.
        "group.id": "rewind-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A deleted offset has to be an error, not skipped.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        # A replay may pause while its receiver is down.
        "max.poll.interval.ms": 86_400_000,
        "queued.min.messages": 5_000,
        # The limit counts compressed bytes; uncompressed they may be many times as large.
        "fetch.message.max.bytes": 262_144,
        "queued.max.messages.kbytes": 4_096,
        # The default, a second, is how long a queue that was full stays unfilled.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        **properties,
    }
