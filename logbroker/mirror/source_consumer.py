"""The consumer that reads the source: start offsets, log ends, commits, and passing errors."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from logbroker.client.batch_skipper import DATA_ERRORS, BatchSkipper, position_after
from logbroker.client.log_bounds import Bounds, fetch_bounds, fetch_log_ends
from logbroker.client.skipped_batches import SkippedBatch
from logbroker.mirror.clients import CLIENT_LOG, error_callback
from logbroker.mirror.domain.partitions import TopicAndPartition
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.sender import CopyFailed, PartitionCopy
from logbroker.mirror.topic_changes import TopicIds

_log: Final = logging.getLogger(__name__)

RECORDS_MAX: Final = 500
"""Records that one read takes from those that the client has fetched."""

WAIT_S: Final = 0.02
"""The longest time that a read blocks; acknowledgements are processed between two reads."""

REQUEST_TIMEOUT_S: Final = 5.0
LOG_END_TIMEOUT_S: Final = 0.5
RETRY_S: Final = 1.0

TOPIC_RECREATED: Final = "topic_recreated"
"""The reason in `errors_total` for a topic that was deleted at the source and recreated."""

RECORDS_LOST: Final = "records_lost"
"""The reason in `errors_total` for a position that the source no longer has."""

_PASSING: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  the client's public names
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    )
)
"""Errors after which the client continues without skipping a record."""

OnRebalance = Callable[[Consumer, list[TopicPartition]], None]


class SourceConsumer:
    """The source's Kafka consumer; for one thread, which also runs the rebalance callbacks.

    A committed position carries the id of its topic, and is ignored in a topic with another id.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        properties: Mapping[str, str],
        ids: TopicIds,
        counts: MirrorCounts,
        stopping: Event,
    ) -> None:
        """`settings` are those of the client; `properties` the operator's, and the servers."""
        self._skipper = BatchSkipper(properties, self._record_unreadable)
        self._ids = ids
        self._counts = counts
        self._stopping = stopping
        self._record_error = error_callback("source", counts.record_error)
        self._paused: frozenset[TopicAndPartition] = frozenset()
        self.has_failed_commit = False
        """Whether a commit failed since this was last reset."""
        self._consumer = Consumer(
            {**settings, "error_cb": self._record_error, "on_commit": self._record_commit},
            logger=CLIENT_LOG,
        )

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        on_assign: OnRebalance,
        on_revoke: OnRebalance,
        on_lost: OnRebalance,
    ) -> None:
        """Join the group; the callbacks run in `read` and `poll`."""
        self._consumer.subscribe(
            list(topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def read(self) -> list[Message]:
        """Return the next records and events; blocks for up to `WAIT_S`."""
        # `consume` waits for all it may return. So wait for one, then take what is available.
        first = self._consumer.poll(WAIT_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(RECORDS_MAX - 1, 0)]

    def poll(self) -> Message | None:
        """Return the next record or event, if there is one; keeps the group membership."""
        return self._consumer.poll(0)

    def pause_only(self, topic_partitions: Collection[TopicAndPartition]) -> None:
        """Read no records of these partitions, and of all others."""
        wanted = frozenset(topic_partitions)
        if wanted != self._paused:
            self._consumer.pause(_partitions(wanted - self._paused))
            self._consumer.resume(_partitions(self._paused - wanted))
            self._paused = wanted

    def forget(self, topic_partitions: Collection[TopicAndPartition]) -> None:
        """Forget that partitions are paused, because they were revoked."""
        self._paused -= frozenset(topic_partitions)

    def handle_error(self, message: Message, copy: PartitionCopy | None) -> bool:
        """Handle a message that has an error instead of a record.

        Returns whether the partition is read again from another position, so that later messages
        of the same read must be dropped.

        Raises:
            CopyFailed: the partition cannot be read.
        """
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            offset = message.offset()
            if copy is not None and offset is not None:
                # Transaction markers may follow the last record.
                copy.progress.skip_to(max(offset, copy.progress.next_offset or 0))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            if copy is not None:
                self._continue_after_reset(copy, error)
                return True
        elif error.code() in DATA_ERRORS:
            self._record_error(error)
            if copy is not None:
                self._pass_unreadable(copy, error)
                return True
        elif error.code() in _PASSING:
            self._record_error(error)
        else:
            where = "" if copy is None else f" at {copy.topic}-{copy.partition}"
            raise CopyFailed(error.name(), f"source failed{where}: {error.str()}", copy)
        return False

    def inspect_silence(self, copy: PartitionCopy) -> bool:
        """Skip unreadable batches at the position of a partition without new records.

        Returns whether the source has records for consumers there.
        """
        position = copy.progress.next_offset
        if position is None:
            return True
        found = self._skipper.skip_unreadable(copy.topic, copy.partition, position)
        end = position_after(found, position)
        if end > position:
            copy.progress.skip_to(end)
            self._continue_at(copy, end)
        return found is None or found.has_records or end > position

    def _pass_unreadable(self, copy: PartitionCopy, error: KafkaError) -> None:
        """Continue behind the batches that the client cannot read.

        Raises:
            CopyFailed: the source cannot be inspected.
        """
        position = copy.progress.next_offset
        if position is None:
            position = self._fetch_bounds(copy).low
        found = self._skipper.skip_unreadable(copy.topic, copy.partition, position, error)
        if found is None:
            where = f"{copy.topic}-{copy.partition}"
            raise CopyFailed(error.name(), f"source failed at {where}: {error.str()}", copy)
        end = position_after(found, position)
        copy.progress.skip_to(end)
        self._continue_at(copy, end)

    def _record_unreadable(self, batch: SkippedBatch) -> None:
        counts = self._counts.of_topic(batch.topic)
        counts.unreadable_batches += 1
        counts.unreadable_offsets += batch.offsets
        _log.error(
            "batch unreadable, skipped topic=%s partition=%s start=%s end=%s reason=%s", *batch
        )

    def _continue_after_reset(self, copy: PartitionCopy, error: KafkaError) -> None:
        """Log what is lost if the source no longer has the position, and continue after it.

        If it has the position, the client took another one from a damaged batch.
        """
        low, end = self._fetch_bounds(copy)
        position = copy.progress.next_offset or 0
        if copy.progress.next_offset is not None and low <= position < end:
            self._pass_unreadable(copy, error)
            return
        lost = max(0, low - position)
        copy.counts.lost += lost
        self._counts.record_error(RECORDS_LOST)
        _log.error(
            "position is not at the source topic=%s partition=%s position=%s earliest=%s end=%s "
            "lost=%s",
            *(copy.topic, copy.partition, position, low, end, lost),
        )
        copy.progress.skip_to(low)
        self._continue_at(copy, low)

    def _fetch_bounds(self, copy: PartitionCopy) -> Bounds:
        return fetch_bounds(self._consumer, copy.topic, copy.partition, REQUEST_TIMEOUT_S)

    def _continue_at(self, copy: PartitionCopy, position: int) -> None:
        tp = TopicPartition(copy.topic, copy.partition, position)
        # The client stopped reading it, and accepts no other position while it is assigned.
        self._consumer.incremental_unassign([tp])
        self._consumer.incremental_assign([tp])
        if (copy.topic, copy.partition) in self._paused:
            self._consumer.pause([tp])

    def start_offsets(
        self, topic_partitions: list[TopicPartition]
    ) -> dict[TopicAndPartition, int | None]:
        """Return the committed positions, None for the earliest offset; waits for the answer.

        Empty if the mirror is stopped.
        """
        while not self._stopping.is_set():
            try:
                stored = (
                    self._consumer.committed(topic_partitions, timeout=REQUEST_TIMEOUT_S)
                    if topic_partitions
                    else []
                )
                for tp in stored:
                    if tp.error is not None:
                        raise KafkaException(tp.error)
            except KafkaException as refusal:
                self._record_error(refusal.args[0])
                self._stopping.wait(RETRY_S)
            else:
                return {(each.topic, each.partition): self._start(each) for each in stored}
        return {}

    def _start(self, stored: TopicPartition) -> int | None:
        topic_id = self._ids.id_of(stored.topic)
        if stored.offset >= 0 and topic_id and stored.metadata and stored.metadata != topic_id:
            self._counts.record_error(TOPIC_RECREATED)
            _log.error(
                "topic was recreated, starting at its earliest offset topic=%s partition=%s",
                *(stored.topic, stored.partition),
            )
            return None
        return stored.offset if stored.offset >= 0 else None

    def assign(self, starts: Mapping[TopicAndPartition, int | None]) -> None:
        """Add partitions to the assignment, from these offsets."""
        topic_partitions = [
            TopicPartition(*tp, OFFSET_BEGINNING if start is None else start)
            for tp, start in starts.items()
        ]
        self._consumer.incremental_assign(topic_partitions)
        # A partition that was paused when it was revoked may have returned.
        self._consumer.resume(topic_partitions)

    def check_topic_ids(self) -> None:
        """Check for topics that were recreated.

        Raises:
            CopyFailed: there is one.
        """
        topic = self._ids.find_recreated()
        if topic is not None:
            raise CopyFailed(TOPIC_RECREATED, f"topic {topic!r} was recreated at the source")

    def log_ends(
        self, topic_partitions: Iterable[TopicAndPartition]
    ) -> dict[TopicAndPartition, int]:
        """Return the log ends of partitions; negative if unknown."""
        ends = {
            tp: self._consumer.get_watermark_offsets(TopicPartition(*tp), cached=True)[1]
            for tp in topic_partitions
        }
        if self._paused:
            # The cached end of a paused partition does not move.
            with suppress(KafkaException):
                ends |= fetch_log_ends(self._consumer, self._paused, LOG_END_TIMEOUT_S)
        return ends

    def commit(self, positions: Mapping[TopicAndPartition, int], *, is_last: bool = False) -> None:
        """Commit positions with the ids of their topics; waits for the answer if `is_last`."""
        offsets = [
            TopicPartition(*tp, position, self._ids.id_of(tp[0]))
            for tp, position in positions.items()
        ]
        if not is_last:
            self._consumer.commit(offsets=offsets)
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refusal:
            self._record_commit(refusal.args[0], [])

    def _record_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            self._counts.record_error(error.name())
            _log.warning("commit failed reason=%s", error.str())
            self.has_failed_commit = True

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def _partitions(topic_partitions: Iterable[TopicAndPartition]) -> list[TopicPartition]:
    return [TopicPartition(*tp) for tp in topic_partitions]
