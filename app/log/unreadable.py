"""Passes over batches that the log has and no client can read, one at a time."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from logbroker.client.batch_skipper import DATA_ERRORS, BatchSkipper, position_after
from logbroker.client.log_bounds import fetch_bounds
from logbroker.client.skipped_batches import SkippedBatch
from logbroker.client.stalls import INSPECT_AFTER_S, STALLED_AFTER_S, StallDetector

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""How soon an inspection is repeated that got no answer."""

_ANSWER_S: Final = 10.0

_LOST: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  the client's public name for it


def log_unreadable(batch: SkippedBatch) -> None:
    """Log a batch that is skipped."""
    _log.error("batch-unreadable", extra=batch._asdict())


class PartitionReads:
    """The positions of a group's partitions, and those that cannot be read; for one thread.

    A client that meets an unreadable batch reports errors without end, continues at an offset that
    it took from damaged bytes, or reports nothing. So the position of each partition is kept here,
    and the client continues behind the batch.
    """

    def __init__(
        self,
        topic: str,
        properties: Mapping[str, str],
        on_unreadable: Callable[[SkippedBatch], object],
    ) -> None:
        self.positions: dict[int, int] = {}
        """The offset after the last record that was handed over, by partition."""
        self.stalled: frozenset[int] = frozenset()
        """The partitions that have made no progress for `STALLED_AFTER_S`."""
        self._topic = topic
        self._skipper = BatchSkipper(properties, on_unreadable)
        self._errors: dict[int, KafkaError | None] = {}
        self._reliable: dict[int, int] = {}
        self._detector: StallDetector[int] = StallDetector()
        self._next_inspection_s: dict[int, float] = {}

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        self.positions.pop(partition, None)
        self._errors.pop(partition, None)
        self._next_inspection_s.pop(partition, None)
        self._detector.forget(partition)
        self.stalled -= {partition}

    def fail(
        self, partition: int | None, error: KafkaError, events: Mapping[int, Sequence[object]]
    ) -> bool:
        """Whether an error means that a partition cannot be read at its position.

        `events` were received before it in the same read, by partition.
        """
        if partition is None or partition not in self.positions:
            return False
        if error.code() not in DATA_ERRORS and error.code() != _LOST:
            return False
        if partition not in self._errors:
            self._errors[partition] = error
            self._reliable[partition] = len(events.get(partition, ()))
        return True

    def drop_unreliable(self, events: dict[int, list[Any]]) -> None:
        """Drop what was received after an error, because it is read again."""
        if not self._reliable:
            return
        for partition, records in self._reliable.items():
            if partition in events:
                del events[partition][records:]
                if not events[partition]:
                    del events[partition]
        self._reliable.clear()

    def measure_lags(
        self, consumer: Consumer, paused: Collection[int], now_s: float
    ) -> dict[int, int]:
        """Return the lag of each partition; finds those that make no progress.

        `now_s` is of a clock that stands still while the reader does not read.
        """
        lags: dict[int, int] = {}
        stalled = set[int]()
        for partition, position in self.positions.items():
            place = TopicPartition(self._topic, partition)
            _, high = consumer.get_watermark_offsets(place, cached=True)
            if high >= 0:
                lags[partition] = max(0, high - position)
            is_waiting = high > position and partition not in paused
            waited_s = self._detector.update(
                partition, position, is_waiting=is_waiting, now_s=now_s
            )
            if waited_s >= INSPECT_AFTER_S:
                self._errors.setdefault(partition, None)
            if waited_s >= STALLED_AFTER_S:
                stalled.add(partition)
        self._report_stalled(stalled)
        return lags

    def pass_unreadable(
        self,
        consumer: Consumer,
        paused: Collection[int],
        skip_to: Callable[[int, int], object],
    ) -> None:
        """Inspect the partitions that cannot be read, and continue behind unreadable batches.

        `skip_to` gets a partition, and the offset behind what is skipped in it.
        """
        now_s = time.monotonic()
        for partition, error in list(self._errors.items()):
            if now_s < self._next_inspection_s.get(partition, 0.0):
                continue
            position = self.positions[partition]
            if error is not None and error.code() == _LOST and self._is_lost(consumer, partition):
                continue
            found = self._skipper.skip_unreadable(self._topic, partition, position, error)
            end = position_after(found, position)
            if end == position:
                self._next_inspection_s[partition] = now_s + _RETRY_S
            if found is None:
                if error is not None:
                    # It would report the same error many times a second.
                    consumer.pause([TopicPartition(self._topic, partition)])
                continue
            del self._errors[partition]
            if not found.has_records and not found.unreadable:
                # There are only markers of transactions.
                self._detector.forget(partition)
            if end > position:
                skip_to(partition, end)
            if end > position or error is not None:
                self._continue_at(consumer, partition, end, paused)

    def _is_lost(self, consumer: Consumer, partition: int) -> bool:
        """Whether the log no longer has the position; continues at the first one that it has."""
        position = self.positions[partition]
        try:
            low, high = fetch_bounds(consumer, self._topic, partition, _ANSWER_S)
        except KafkaException as refusal:
            _log.warning("log-unavailable", extra={"topic": self._topic, "reason": str(refusal)})
            return True
        if low <= position <= high:
            return False
        _log.error(
            "records-lost",
            extra={
                "topic": self._topic,
                "partition": partition,
                "offset": position,
                "available": f"[{low}, {high})",
            },
        )
        del self._errors[partition]
        self._continue_at(consumer, partition, low, ())
        return True

    def _continue_at(
        self, consumer: Consumer, partition: int, position: int, paused: Iterable[int]
    ) -> None:
        place = TopicPartition(self._topic, partition, position)
        # The client accepts no other position of a partition that it stopped reading.
        consumer.incremental_unassign([place])
        consumer.incremental_assign([place])
        if partition in paused:
            consumer.pause([place])
        else:
            consumer.resume([place])
        self.positions[partition] = position

    def _report_stalled(self, stalled: set[int]) -> None:
        for partition in sorted(stalled - self.stalled):
            _log.error(
                "partition-stalled",
                extra={
                    "topic": self._topic,
                    "partition": partition,
                    "offset": self.positions[partition],
                },
            )
        self.stalled = frozenset(stalled)
