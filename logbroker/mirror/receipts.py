"""Tells the audit at the source what the mirror has brought over."""

import logging
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
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

LOST: Final = "receipts_lost"
"""What `errors_total` calls it when they are given up: the audit will call them a loss."""

TIMEOUT_MS: Final = 5_000
AGAIN_AFTER_S: Final = 30.0
"""How long receipts wait that were refused."""

LAST_S: Final = 3.0
"""How long `finish` waits: partitions that are given away wait for it, and so does a stop."""

UNPUBLISHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Refused events that are kept to be tried again; half of what the producer holds at once."""


class ReceiptPublisher:
    """Publishes what its book counted; for the mirror's thread alone, for as long as it runs.

    Positions are committed once `is_settled` after `begin`. A topic that will not take receipts
    stops nothing: they are tried again later, and that is said. Meanwhile the book goes on
    counting, which needs less memory than events.
    """

    def __init__(self, source: Cluster, book: ReceiptBook, counts: MirrorCounts) -> None:
        settings = producer_settings(source.servers, source.properties) | {
            "message.timeout.ms": TIMEOUT_MS,
            # Such a producer can end for good, and this one is to last. What is written twice
            # counts once, in any order.
            "enable.idempotence": False,
            "enable.gapless.guarantee": False,
            # How long a topic that is not there is looked for.
            "topic.metadata.propagation.max.ms": 1_000,
            "error_cb": Complaints("source", counts.error).note,
        }
        self.book = book
        self._counts = counts
        self._producer = Producer(settings, logger=CLIENT_LOG)
        self._unpublished: deque[AuditRecord] = deque()
        self._refusal = ""
        self._next_try_s = 0.0

    def begin(self) -> None:
        """Publish everything that was counted up to now, or was refused; only when settled."""
        is_time = time.monotonic() >= self._next_try_s
        if is_time or self.book.is_full:
            self._keep(self.book.take())
        if is_time:
            records, self._unpublished = self._unpublished, deque()
            for record in records:
                self._send(record)

    def is_settled(self) -> bool:
        """Whether nothing is under way any more."""
        self._producer.poll(0)
        if len(self._producer):
            return False
        if self._refusal:
            self._counts.error(REASON)
            _log.error("receipts not taken topic=%s reason=%s", AUDIT_TOPIC, self._refusal)
            self._refusal = ""
            self._next_try_s = time.monotonic() + AGAIN_AFTER_S
        return True

    def finish(self) -> bool:
        """Publish at once, and wait for the end of it; whether nothing is under way any more."""
        until_s = time.monotonic() + LAST_S
        self._producer.flush(LAST_S)
        if not self.is_settled():
            return False
        self._next_try_s = 0.0
        self.begin()
        self._producer.flush(max(0.0, until_s - time.monotonic()))
        return self.is_settled()

    def close(self) -> None:
        """Try for the last time, and say what is lost by it."""
        self.finish()
        self._say_lost(len(self._unpublished) + len(self._producer))

    def _keep(self, records: Iterable[AuditRecord]) -> None:
        """Take these to those that are to be published; the oldest go if there are too many."""
        self._unpublished.extend(records)
        count = len(self._unpublished)
        excess = sum(len(each.value) for each in self._unpublished) - UNPUBLISHED_BYTES_MAX
        while excess > 0:
            excess -= len(self._unpublished.popleft().value)
        self._say_lost(count - len(self._unpublished))

    def _say_lost(self, events: int) -> None:
        if events:
            self._counts.error(LOST)
            _log.error("receipts lost topic=%s events=%s", AUDIT_TOPIC, events)

    def _send(self, record: AuditRecord) -> None:
        heard = partial(self._heard, record)
        try:
            self._producer.produce(AUDIT_TOPIC, record.value, record.key, on_delivery=heard)
        except (BufferError, KafkaException) as refusal:
            self._refuse(record, str(refusal))

    def _heard(self, record: AuditRecord, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refuse(record, error.str())

    def _refuse(self, record: AuditRecord, reason: str) -> None:
        """Keep it as it is: should it have been written all the same, it counts once."""
        self._unpublished.append(record)
        self._refusal = reason
