"""The copy loop: reads records from the committed positions on, sends them, and commits.

Everything here runs on one thread, because a Kafka consumer must not be called by two.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from logbroker.client.stalls import INSPECT_AFTER_S, STALLED_AFTER_S, StallDetector
from logbroker.mirror.domain.partitions import (
    PartitionBackoff,
    TopicAndPartition,
    format_partitions,
)
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.received_reports import MirrorReports
from logbroker.mirror.sender import CopyFailed, PartitionCopy, Sender
from logbroker.mirror.source_consumer import SourceConsumer
from logbroker.mirror.topics import CopyPlan

_log: Final = logging.getLogger(__name__)

COMMIT_S: Final = 1.0
"""Time between two commits; a crash repeats as much."""

FULL_WAIT_S: Final = 0.05
PAUSE_AFTER_S: Final = 1.0
"""How long reading waits for room before partitions are paused, which drops fetched records."""

DRAIN_S: Final = 5.0
"""How long a revocation and a shutdown wait for the destination."""


class CopyLoop:
    """Copies the topics of a plan until it is stopped, fails, or the plan is outdated."""

    def __init__(
        self,
        source: SourceConsumer,
        plan: CopyPlan,
        sender: Sender,
        reports: MirrorReports,
        counts: MirrorCounts,
        backoff: PartitionBackoff,
        stopping: Event,
        on_assigned: Callable[[], None],
    ) -> None:
        """`on_assigned` is called after each assignment, also of no partitions."""
        self._source = source
        self._plan = plan
        self._sender = sender
        self._reports = reports
        self._counts = counts
        self._backoff = backoff
        self._stopping = stopping
        self._on_assigned = on_assigned
        self._copies: dict[TopicAndPartition, PartitionCopy] = {}
        self._waiting: list[Message] = []
        self._full_since_s: float | None = None
        self._is_full = False
        self._is_outdated = False
        self._failure: CopyFailed | None = None
        self._due: dict[TopicAndPartition, int] = {}
        self._stalls: StallDetector[TopicAndPartition] = StallDetector()
        self._next_inspection_s: dict[TopicAndPartition, float] = {}
        self._next_commit_s = time.monotonic() + COMMIT_S

    def run(self) -> None:
        """Copy until stopped, or until there are topics or partitions that the plan lacks.

        Everything that the destination acknowledged is committed at the end.

        Raises:
            CopyFailed: copying cannot continue without a restart.
        """
        try:
            self._subscribe()
            while not (self._stopping.is_set() or self._is_outdated):
                self._run_once()
            self._finish()
        except KafkaException as error:
            self._sender.flush(DRAIN_S)
            raise CopyFailed(error.args[0].name(), error.args[0].str()) from error
        finally:
            self._close()

    def _subscribe(self) -> None:
        if not self._plan.topics:
            # An empty subscription gets no assignment.
            self._on_assigned()
            return
        self._source.subscribe(
            self._plan.topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _run_once(self) -> None:
        self._sender.poll(0)
        if self._failure is not None:
            raise self._failure
        if self._waiting:
            self._send_waiting()
        else:
            self._pause_partitions()
            self._waiting = self._source.read()
        self._commit_when_due()

    def _send_waiting(self) -> None:
        copies, send = self._copies, self._sender.send
        for index, message in enumerate(self._waiting):
            copy = copies.get((message.topic(), message.partition()))  # type: ignore[arg-type]
            if message.error() is not None:
                if self._handle_error(message, copy):
                    self._drop_waiting(index)
                    return
            # Records of revoked partitions are another mirror's to copy.
            elif copy is not None and not send(copy, message):
                del self._waiting[:index]
                self._wait_for_room()
                return
        self._waiting = []
        self._full_since_s = None
        self._is_full = False

    def _drop_waiting(self, index: int) -> None:
        """Drop what waits of a partition that is read again from another position.

        `index` is that of its error; everything before it is done.
        """
        failed = self._waiting[index]
        tp = failed.topic(), failed.partition()
        left = self._waiting[index + 1 :]
        self._waiting = [each for each in left if (each.topic(), each.partition()) != tp]

    def _handle_error(self, message: Message, copy: PartitionCopy | None) -> bool:
        try:
            return self._source.handle_error(message, copy)
        except CopyFailed:
            # The records before it are copied.
            self._sender.flush(DRAIN_S)
            raise

    def _wait_for_room(self) -> None:
        """Wait for the destination, and keep the group membership if that takes long."""
        self._sender.poll(FULL_WAIT_S)
        now_s = time.monotonic()
        if self._full_since_s is None:
            self._full_since_s = now_s
        if now_s - self._full_since_s < PAUSE_AFTER_S:
            return
        self._is_full = True
        self._pause_partitions()
        late = self._source.poll()
        if late is not None:
            self._waiting.append(late)

    def _pause_partitions(self) -> None:
        """Pause partitions that failed, and all of them while there is no room."""
        now_s = time.monotonic()
        is_paused = self._backoff.is_paused
        self._source.pause_only([p for p in self._copies if self._is_full or is_paused(p, now_s)])

    def _commit_when_due(self) -> None:
        """Commit at intervals, after the audit reports that cover the positions."""
        if not self._reports.is_settled():
            return
        if self._due:
            self._commit(self._due)
            return
        now_s = time.monotonic()
        if now_s < self._next_commit_s and not self._reports.counter.is_full:
            return
        self._next_commit_s = now_s + COMMIT_S
        self._source.check_topic_ids()
        if self._plan.watch.has_changed():
            self._is_outdated = True
        self._measure_lag()
        self._due = self._uncommitted()
        # Without uncommitted positions there may be rejected reports.
        self._reports.start()

    def _uncommitted(self) -> dict[TopicAndPartition, int]:
        if self._source.has_failed_commit:
            self._source.has_failed_commit = False
            # The next commit repeats all positions.
            for copy in self._copies.values():
                copy.progress.committed = None
        return {
            tp: position
            for tp, copy in self._copies.items()
            if (position := copy.progress.position) is not None
            and position != copy.progress.committed
        }

    def _commit(self, positions: Mapping[TopicAndPartition, int], *, is_last: bool = False) -> None:
        self._due = {}
        for tp, position in positions.items():
            self._copies[tp].progress.committed = position
        self._source.commit(positions, is_last=is_last)

    def _commit_last(self) -> None:
        """Commit, and wait for it; if it fails, what was copied since is copied again."""
        self._due = {}
        positions = self._uncommitted()
        if not positions:
            return
        if not self._reports.finish():
            # The next owner of the partitions reports the records.
            _log.warning("commit skipped reason=audit reports are in flight")
            return
        self._commit(positions, is_last=True)

    def _measure_lag(self) -> None:
        ends, now_s = self._source.log_ends(self._copies), time.monotonic()
        self._inspect_stalled(ends, now_s)
        for tp, copy in self._copies.items():
            position, end = copy.progress.position, ends[tp]
            if position is not None and end >= 0:
                self._counts.lags[tp] = max(0, end - position)
                self._counts.uncopied_of(tp).update(now_s, position, end)

    def _inspect_stalled(self, ends: Mapping[TopicAndPartition, int], now_s: float) -> None:
        """Skip what the client cannot read without an error; record partitions that stall."""
        stalled = set[TopicAndPartition]()
        for tp, copy in self._copies.items():
            position = copy.progress.next_offset
            is_read = not self._is_full and not self._backoff.is_paused(tp, now_s)
            is_waiting = position is not None and ends[tp] > position and is_read
            waited_s = self._stalls.update(tp, position or 0, is_waiting=is_waiting, now_s=now_s)
            if waited_s < INSPECT_AFTER_S:
                self._next_inspection_s.pop(tp, None)
                continue
            if waited_s >= STALLED_AFTER_S:
                stalled.add(tp)
            if now_s >= self._next_inspection_s.get(tp, 0.0):
                self._next_inspection_s[tp] = now_s + INSPECT_AFTER_S
                if not self._source.inspect_silence(copy):
                    # There are only markers of transactions, or one is open.
                    self._stalls.forget(tp)
        for tp in sorted(stalled - self._counts.stalled):
            position = self._copies[tp].progress.next_offset
            _log.error("partition stalled topic=%s partition=%s offset=%s", *tp, position)
        self._counts.stalled = frozenset(stalled)

    def _on_assign(self, _: Consumer, topic_partitions: list[TopicPartition]) -> None:
        known = self._plan.partitions
        if any(tp.partition >= known.get(tp.topic, 0) for tp in topic_partitions):
            self._is_outdated = True
        starts = {} if self._is_outdated else self._source.start_offsets(topic_partitions)
        for (topic, partition), start in starts.items():
            self._copies[topic, partition] = PartitionCopy(topic, partition, start, self._counts)
        self._source.assign(starts)
        self._pause_partitions()
        if not self._is_outdated:
            if topic_partitions:
                # A rebalance may also assign nothing new.
                _log.info("partitions assigned partitions=%s", _format(topic_partitions))
            for tp in self._counts.uncopied.keys() - self._copies.keys():
                # Another mirror reports it now.
                del self._counts.uncopied[tp]
            self._on_assigned()

    def _on_revoke(self, consumer: Consumer, topic_partitions: list[TopicPartition]) -> None:
        if any((tp.topic, tp.partition) in self._copies for tp in topic_partitions):
            is_acknowledged = self._sender.flush(DRAIN_S)
            self._commit_last()
            if not is_acknowledged and self._sender.failure is None:
                # Records in flight must not arrive after those of the next owner.
                self._failure = CopyFailed(
                    "partitions_revoked",
                    "partitions were revoked before the destination had their records",
                )
        self._forget(topic_partitions)
        _log.info("partitions revoked partitions=%s", _format(topic_partitions))
        consumer.incremental_unassign(topic_partitions)

    def _on_lost(self, consumer: Consumer, topic_partitions: list[TopicPartition]) -> None:
        self._forget(topic_partitions)
        self._failure = CopyFailed(
            "partitions_lost", f"partitions lost: {_format(topic_partitions)}"
        )
        consumer.incremental_unassign(topic_partitions)

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        topic_partitions = [(each.topic, each.partition) for each in partitions]
        for tp in topic_partitions:
            self._copies.pop(tp, None)
            self._counts.lags.pop(tp, None)
            self._due.pop(tp, None)
            self._stalls.forget(tp)
            self._counts.stalled -= {tp}
        self._source.forget(topic_partitions)

    def _finish(self) -> None:
        self._waiting.clear()
        if not self._sender.flush(DRAIN_S):
            _log.warning("not acknowledged in time records=%s", self._sender.in_flight)

    def _close(self) -> None:
        """Commit what was acknowledged, and leave the group."""
        self._sender.abandon()
        self._waiting.clear()
        self._commit_last()
        self._forget([TopicPartition(*tp) for tp in self._copies])
        self._source.close()


def _format(topic_partitions: Sequence[TopicPartition]) -> str:
    return format_partitions((tp.topic, tp.partition) for tp in topic_partitions)
