"""Hands records to the destination, and learns what became of each."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logbroker.client.audit_format.mark import AUDIT_HEADER
from logbroker.client.librdkafka import readable_headers
from logbroker.mirror.clients import CLIENT_LOG
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.progress import PartitionProgress
from logbroker.mirror.provenance import Headers, PassedOver, Provenance

_log: Final = logging.getLogger(__name__)

KNOWN_S: Final = 60.0
"""How long a broker surely remembers a producer; by default it does for a day."""

_PURGE_S: Final = 1.0
_REFUSALS_S: Final = 1.0

_WITH_ANOTHER: Final = frozenset(
    (
        *("_FATAL", "_GAPLESS_GUARANTEE", "_PURGE_QUEUE", "_PURGE_INFLIGHT"),
        "_INVALID_DIFFERENT_RECORD",
    )
)
"""Why a record was not written that was sent with one, or behind one, that was refused."""

_EARLIEST_MS: Final = 1
"""The client takes 0 for the present time: records of 1970's first millisecond get its second."""


class PassageFailed(Exception):
    """Records cannot go on as they were; `reason` is the name of an error, for the metrics.

    `lane` is the one whose record was refused, or cannot be read, if that is what happened.
    """

    def __init__(self, reason: str, message: str, lane: "Lane | None" = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.lane = lane


class Lane:
    """One partition on its way: how far it is, and where it is counted.

    Several requests are on their way at a time. That none is taken behind one that was refused
    rests on their sequence numbers, and a broker checks these only of producers that it knows in
    that partition. So the first record goes alone, and so does one after a long silence, in which
    the broker may have forgotten.

    Source: Kafka, `ProducerAppendInfo.checkSequence`; KIP-360.
    """

    __slots__ = ("acknowledged_s", "counts", "partition", "progress", "topic")

    def __init__(self, topic: str, partition: int, start: int | None, counts: MirrorCounts) -> None:
        """`start` is the offset to begin at; None for the earliest."""
        self.topic = topic
        self.partition = partition
        self.progress = PartitionProgress(start)
        self.counts = counts.of_topic(topic)
        self.acknowledged_s = 0.0
        """When the destination took the last record, in seconds since 1970."""

    def has_room(self, now_s: float) -> bool:
        """Whether the next record may go."""
        return now_s - self.acknowledged_s < KNOWN_S or self.progress.is_level


class Sender:
    """A producer, and the acknowledgements of what it was given; for one thread.

    After the first `failure` nothing more is written: records behind one that was refused wait
    in vain. Whoever sees it begins again with another sender.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        provenance: Provenance,
        counts: MirrorCounts,
        receive: Callable[[str, bytes | None], None],
    ) -> None:
        """`receive` is given topic and audit mark of each record that the destination has."""
        self.failure: PassageFailed | None = None
        self._provenance = provenance
        self._counts = counts
        self._receive = receive
        self._now_s = time.time()
        self._producer = Producer(settings, logger=CLIENT_LOG)

    def send(self, lane: Lane, message: Message) -> bool:
        """Take a record of the source; False where there is no room for it at present."""
        topic, offset = lane.topic, message.offset()
        assert offset is not None
        headers = readable_headers(message)
        if headers is None:
            return self._pass_over_unreadable(lane, offset)
        carried: Any = self._provenance.carried(headers)
        mark = _mark(headers) if headers else None
        if isinstance(carried, PassedOver):
            lane.progress.skip_to(offset + 1)
            self._counts.pass_over(topic, carried)
            # Of another origin the destination may have nothing: that is not this mirror's to say.
            if carried is PassedOver.LOOP:
                self._receive(topic, mark)
            return True
        if not lane.has_room(self._now_s):
            return False
        value, key, time_ms = message.value(), message.key(), message.timestamp()[1]
        size = (len(value) if value else 0) + (len(key) if key else 0)
        try:
            self._producer.produce(
                topic,
                value,
                key,
                lane.partition,
                on_delivery=partial(self._settle, lane, offset, time_ms, size, mark),
                timestamp=time_ms or _EARLIEST_MS,
                headers=list(carried),
            )
        except BufferError:
            return False
        except KafkaException as refusal:
            self._fail(lane, offset, refusal.args[0])
        lane.progress.send(offset)
        return True

    def _pass_over_unreadable(self, lane: Lane, offset: int) -> bool:
        """Leave out what the client can neither read whole nor write: waiting would not help."""
        _log.error(
            "record passed over, the name of a header is not UTF-8 topic=%s partition=%s offset=%s",
            *(lane.topic, lane.partition, offset),
        )
        lane.progress.skip_to(offset + 1)
        self._counts.pass_over(lane.topic, PassedOver.UNREADABLE)
        return True

    def poll(self, wait_s: float) -> None:
        """Hear of acknowledgements, and wait for one so long.

        Raises:
            PassageFailed: a record was refused, now or before.
        """
        self._hear(lambda: self._producer.poll(wait_s))
        if self.failure is not None:
            raise self.failure

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is acknowledged, so long at most; whether it is."""
        self._hear(lambda: self._producer.flush(timeout_s))
        return len(self._producer) == 0 and self.failure is None

    @property
    def under_way(self) -> int:
        """Records that were neither acknowledged nor refused yet."""
        return len(self._producer)

    def abandon(self) -> None:
        """Give up what is not acknowledged: whether it was written is not known."""
        self._producer.purge()
        self._hear(lambda: self._producer.flush(_PURGE_S))

    def _hear(self, listen: Callable[[], int]) -> None:
        """Take acknowledgements and refusals, in `listen`."""
        self._now_s = time.time()
        try:
            listen()
        except KafkaException as fatal:
            # The client ends itself before it tells what became of the records.
            self._producer.purge(in_flight=False)
            self._producer.flush(_REFUSALS_S)
            if self.failure is None:
                error = fatal.args[0]
                self.failure = PassageFailed(error.name(), f"the destination: {error.str()}")

    def _settle(
        self,
        lane: Lane,
        offset: int,
        time_ms: int,
        size: int,
        mark: bytes | None,
        error: KafkaError | None,
        _: Message,
    ) -> None:
        if error is not None:
            self._fail(lane, offset, error)
            return
        lane.progress.settle(offset)
        lane.acknowledged_s = self._now_s
        lane.counts.copied(size, self._now_s - time_ms / 1_000 if time_ms > 0 else 0.0)
        if mark is not None:
            self._receive(lane.topic, mark)

    def _fail(self, lane: Lane, offset: int, error: KafkaError) -> None:
        # Those that go down with it say less.
        if self.failure is None or self.failure.reason in _WITH_ANOTHER:
            self.failure = PassageFailed(
                error.name(),
                f"the destination did not take {lane.topic}-{lane.partition} from the source's "
                f"offset {offset} on: {error.str()} ({error.name()})",
                lane,
            )


def _mark(headers: Headers) -> bytes | None:
    mark = None
    for name, value in headers:
        if name == AUDIT_HEADER:
            mark = value
    return mark
