"""What a consumer's streams hand out, counted for the audit and told before offsets are stored."""

import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from logbroker.client.audit_event import AuditRecord
from logbroker.client.audit_mark import AUDIT_TOPIC, find_mark_header
from logbroker.client.receipts import ReceiptBook
from logbroker.consumer.audit_publisher import AuditPublisher
from logbroker.consumer.fetching import Message

EVENT_TIMEOUT_S: Final = 5.0
"""How long an event may take: a rebalance may have to wait for it, twice."""

PUBLISH_S: Final = 5.0
"""Time between two events, should offsets be committed more seldom or never."""


class StreamReceipts:
    """The receipts of one stream, in whose lock it is used.

    `on_full` is called when so much is kept that it should be taken, once until it is.
    """

    def __init__(self, tier: str, consumer: str, on_full: Callable[[], None]) -> None:
        """`consumer` names the stream, among all consumers of the tier."""
        self._book = ReceiptBook(tier, consumer)
        self._on_full = on_full
        self._is_told = False

    def note(self, message: Message) -> None:
        """Count a message that is handed out."""
        self._book.note(message.topic, find_mark_header(message.headers))
        if self._book.is_full and not self._is_told:
            self._is_told = True
            self._on_full()

    def take(self) -> list[AuditRecord]:
        """The events of what was handed out since they were taken last."""
        self._is_told = False
        return self._book.take()


class ConsumerReceipts:
    """The receipts of all streams of a consumer, and who writes them; for one thread."""

    def __init__(self, publisher: AuditPublisher, take: Callable[[], list[AuditRecord]]) -> None:
        """`take` gives the events of all streams since they were taken last."""
        self._publisher = publisher
        self._take = take
        self.next_s = 0.0

    def publish(self) -> bool:
        """Have the log acknowledge what was handed out so far; whether it did.

        Without a broker it takes about twice `EVENT_TIMEOUT_S`.
        """
        return self._publisher.publish(self._take)

    def publish_when_due(self, clock: Callable[[], float]) -> None:
        """Do so if it is time to, which is `next_s`."""
        if clock() >= self.next_s:
            self.publish()
            self.next_s = clock() + PUBLISH_S

    def close(self) -> None:
        """Stop; what was not acknowledged comes again to whoever goes on, and is counted there."""
        self._publisher.close()


def new_stream_name() -> str:
    """A name for one stream of this process that no other has."""
    return f"{socket.gethostname()}/{secrets.token_hex(6)}"


def make_publisher(bootstrap_servers: str, client_settings: Mapping[str, Any]) -> AuditPublisher:
    """Who writes a consumer's receipts.

    Raises:
        ConfigurationError: librdkafka does not take these settings.
    """
    return AuditPublisher(
        bootstrap_servers, AUDIT_TOPIC, timeout_s=EVENT_TIMEOUT_S, client_settings=client_settings
    )
