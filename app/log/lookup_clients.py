"""The two clients that look up what a log has, each for what the other does badly."""

import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from app.log.complaints import COMPLAINTS

_LEADERS_AGE_MS: Final = 1_000


class LookupClients:
    """An admin client and a consumer, made at first use. Safe to use from any thread.

    `properties` are the operator's: TLS, SASL and the like. After `silence_ms` without an answer a
    client drops the broker that it asked for metadata: it prefers the one that it asked last, so
    one that hangs would be asked again each time.
    """

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, Any], group: str, silence_ms: int
    ) -> None:
        # The errors a caller can do something about come with the answers.
        self._properties: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "error_cb": COMPLAINTS.report_error,
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
        """For topics. It joins no group; the client requires a group's name.

        Any broker answers a consumer. The admin client asks the controller, which may be the one
        broker that is down, or creates the topic by asking.
        """
        return self._both()[1]

    def _both(self) -> tuple[AdminClient, Consumer]:
        with self._lock:
            if self._made is None:
                # By default the admin client believes for a quarter of an hour that a partition's
                # leader is the one that it was, and asks that one although it is dead.
                admin = {**self._properties, "metadata.max.age.ms": _LEADERS_AGE_MS}
                consumer = {**self._properties, "group.id": self._group}
                self._made = AdminClient(admin), Consumer(consumer)
            return self._made
