"""Tells the audit at the source what the mirror has brought over."""

import logging
import time
from collections import deque
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logbroker.client.audit_event import AuditRecord
from logbroker.client.audit_mark import AUDIT_TOPIC
from logbroker.client.receipts import ReceiptBook
from logbroker.mirror.clients import CLIENT_LOG, Complaints, producer_settings
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.settings import Cluster

_log: Final = logging.getLogger(__name__)

REASON: Final = "receipts"
"""What `errors_total` calls it when the audit's topic will not take them."""

TIMEOUT_MS: Final = 5_000
AGAIN_AFTER_S: Final = 30.0
"""How long receipts wait that were refused."""

UNPUBLISHED_MAX: Final = 200
"""Refused events that are kept to be tried again; each is below half a megabyte."""


class ReceiptPublisher:
    """Publishes what its book counted; for the mirror's thread alone.

    Positions are committed once `is_settled` after `begin`. A topic that will not take receipts
    stops nothing: they are tried again later, and that is said.
    """

    def __init__(self, source: Cluster, book: ReceiptBook, counts: MirrorCounts) -> None:
        settings = producer_settings(source.servers, source.properties) | {
            "message.timeout.ms": TIMEOUT_MS,
            "enable.gapless.guarantee": False,
            # How long a topic that is not there is looked for.
            "topic.metadata.propagation.max.ms": 1_000,
            "error_cb": Complaints("source", counts.error).note,
        }
        self.book = book
        self._counts = counts
        self._producer = Producer(settings, logger=CLIENT_LOG)
        self._unpublished: deque[AuditRecord] = deque(maxlen=UNPUBLISHED_MAX)
        self._under_way: list[AuditRecord] = []
        self._refusal = ""
        self._next_try_s = 0.0

    def begin(self) -> None:
        """Publish everything that was counted up to now."""
        if self._under_way:
            return
        self._unpublished.extend(self.book.take())
        if time.monotonic() < self._next_try_s:
            return
        self._under_way = list(self._unpublished)
        self._unpublished.clear()
        for record in self._under_way:
            self._send(record)

    def is_settled(self) -> bool:
        """Whether nothing is under way any more."""
        self._producer.poll(0)
        if len(self._producer):
            return False
        self._settle()
        return True

    def finish(self, timeout_s: float) -> None:
        """Publish, and wait for the end of it."""
        self.begin()
        self._producer.flush(timeout_s)
        self._settle()

    def _send(self, record: AuditRecord) -> None:
        try:
            self._producer.produce(AUDIT_TOPIC, record.value, record.key, on_delivery=self._heard)
        except (BufferError, KafkaException) as refusal:
            self._refusal = str(refusal)

    def _heard(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refusal = error.str()

    def _settle(self) -> None:
        """Keep what was refused. The audit counts what was taken of it twice, and loses nothing."""
        if self._refusal:
            self._counts.error(REASON)
            _log.error("receipts not taken topic=%s reason=%s", AUDIT_TOPIC, self._refusal)
            self._unpublished.extendleft(reversed(self._under_way))
            self._next_try_s = time.monotonic() + AGAIN_AFTER_S
        self._under_way = []
        self._refusal = ""
