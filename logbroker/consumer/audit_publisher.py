"""Writes monitoring events to the topic `audit`, and keeps those that it did not take."""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from logbroker.client.audit_event import AuditRecord
from logbroker.client.errors import SendFailed
from logbroker.consumer.producer import Producer, SentSet

_log: Final = logging.getLogger(__name__)


class AuditPublisher:
    """A producer of monitoring events; for one thread at a time.

    An event that was not acknowledged is sent again as it is. It may be in the log then twice, with
    the same bytes, which counts for one.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        timeout_s: float,
        client_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`timeout_s` is how long an event may take until it has failed.

        Raises:
            ConfigurationError: a setting cannot be.
        """
        self._topic = topic
        # Events are few: there is nothing to wait for, and their time is short.
        settings = {**(client_settings or {}), "linger.ms": 0}
        self._producer = Producer(
            bootstrap_servers, delivery_timeout_s=timeout_s, client_settings=settings
        )
        self._kept: list[AuditRecord] = []

    def publish(self, take: Callable[[], list[AuditRecord]]) -> bool:
        """Write what was kept, and then what `take` gives; whether all of it is acknowledged.

        While something is kept, nothing more is taken: what is counted meanwhile stays where it is
        counted, which needs less memory. It takes about twice `timeout_s` at most.
        """
        if not self._send_kept():
            return False
        self._kept = take()
        return self._send_kept()

    @property
    def kept(self) -> list[AuditRecord]:
        """What was taken and is not acknowledged."""
        return self._kept

    def close(self) -> None:
        """Stop; what is kept is lost."""
        self._producer.close()

    def _send_kept(self) -> bool:
        self._kept = [
            record for record, sending in self._sendings(self._kept) if not _is_written(sending)
        ]
        return not self._kept

    def _sendings(
        self, records: Iterable[AuditRecord]
    ) -> "list[tuple[AuditRecord, Future[SentSet] | None]]":
        """Each record and its sending; none for those behind the first that cannot be sent."""
        found: list[tuple[AuditRecord, Future[SentSet] | None]] = []
        is_refused = False
        for record in records:
            sending = None
            if not is_refused:
                try:
                    sending = self._producer.send(self._topic, [record.value], record.key)
                except SendFailed as error:
                    _log.warning("monitoring events wait: %s", error)
                    is_refused = True
            found.append((record, sending))
        return found


def _is_written(sending: "Future[SentSet] | None") -> bool:
    if sending is None:
        return False
    try:
        sending.result()
    except SendFailed as error:
        _log.warning("a monitoring event waits: %s", error)
        return False
    return True
