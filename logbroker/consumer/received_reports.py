"""Counts what a consumer's streams return, and reports it before offsets are stored."""

import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from logbroker.client.audit_format.mark import find_mark_header
from logbroker.client.audit_format.report import AuditRecord
from logbroker.client.audit_reporter import AuditProducer
from logbroker.client.received_counter import ReceivedCounter
from logbroker.consumer.fetching import Message

REPORT_TIMEOUT_S: Final = 5.0
"""How long one attempt to write a report may take; a rebalance may wait for two."""

REPORT_EVERY_S: Final = 5.0
"""Time between two reports if offsets are committed less often or never."""


class StreamCounter:
    """Counts the messages of one stream, under the stream's lock.

    `on_full` is called once when reports should be taken, until they are.
    """

    def __init__(self, tier: str, on_full: Callable[[], None]) -> None:
        consumer = f"{socket.gethostname()}/{secrets.token_hex(6)}"
        self._counter = ReceivedCounter(tier, consumer)
        self._on_full = on_full
        self._has_called = False

    def count_message(self, message: Message) -> None:
        """Count a message that the stream returns."""
        self._counter.count_message(message.topic, find_mark_header(message.headers))
        if self._counter.is_full and not self._has_called:
            self._has_called = True
            self._on_full()

    def take_reports(self) -> list[AuditRecord]:
        """Return reports of the messages counted since the previous call."""
        self._has_called = False
        return self._counter.take_reports()


class ConsumerReports:
    """Reports what all streams of a consumer returned; for one thread."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_settings: Mapping[str, Any],
        take_reports: Callable[[], list[AuditRecord]],
    ) -> None:
        """`take_reports` returns the reports of all streams since its previous call.

        Raises:
            ConfigurationError: librdkafka rejects the settings.
        """
        self._producer = AuditProducer(
            bootstrap_servers, timeout_s=REPORT_TIMEOUT_S, client_settings=client_settings
        )
        self._take_reports = take_reports
        self.next_s = 0.0

    def report(self) -> bool:
        """Report everything returned so far; return whether the log acknowledged it.

        It takes at most about twice `REPORT_TIMEOUT_S`.
        """
        return self._producer.report(self._take_reports)

    def report_when_due(self, clock: Callable[[], float]) -> None:
        """Report if it is time to, at `next_s`."""
        if clock() >= self.next_s:
            self.report()
            self.next_s = clock() + REPORT_EVERY_S
