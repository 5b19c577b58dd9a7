"""Reads a topic as a member of a consumer group, and hands the records to an event loop."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.log.client_errors import CLIENT_LOG
from app.log.event import LoggedEvent, account_of, header_text, is_presentable
from app.log.group_position import Committed, GroupPosition, fetch_positions
from app.log.log_end_watch import LogEndWatch
from app.log.unreadable import PartitionReads, log_unreadable
from logbroker.client.audit_format.mark import AUDIT_HEADER
from logbroker.client.librdkafka import readable_headers
from logbroker.client.skipped_batches import SkippedBatch

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

RECORDS_MAX: Final = 500
"""Records that are handed over at once."""

_WAIT_S: Final = 0.1
"""The longest time that a read blocks, and so the delay of commits."""

_IDLE_WAIT_S: Final = 1.0
"""The same while the log end is watched, and so the delay of a rebalance; others end it at once."""

QUIET_S: Final = 5.0
"""After this time without records, commits and rebalances, the log end is watched."""

_HELD_WAIT_S: Final = 0.02
"""The same while partitions are held, and so the delay of their release."""

_HANDED_MAX: Final = 2
"""Hand-overs that the loop has not processed yet; with two, reading and processing overlap."""

_ANSWER_S: Final = 10.0
_RETRY_S: Final = 1.0
_LAG_S: Final = 2.0


class GroupStage(Protocol):
    """The consumer of the records; its methods are called on the event loop, in order."""

    async def start_partitions(self, positions: Mapping[int, GroupPosition]) -> Mapping[int, int]:
        """Return the start offsets of newly assigned partitions.

        Partitions without a committed offset are committed after this returns. It is cancelled
        when the reader is stopped.
        """

    def process_events(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        """Process records, by partition. An event without a valid id has an empty one."""

    def skip_to(self, partition: int, offset: int) -> None:
        """Treat the unread offsets below `offset` as processed: their batches cannot be read."""

    async def release_partitions(self, partitions: Sequence[int]) -> Mapping[int, Committed]:
        """Finish work on revoked partitions; return the last commit of each."""

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        """Drop work on partitions that another member may already have."""


class GroupReader:
    """One member of a group, on a thread of its own while `run` runs.

    Partitions are assigned by the cooperative protocol: a member keeps its partitions while others
    join and leave. The loop pauses partitions with `hold`, and resumes them with `release`.
    `joined` is set after the first assignment.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        group: str,
        stage: GroupStage,
        *,
        properties: Mapping[str, str] = {},
        on_unreadable: Callable[[SkippedBatch], object] = log_unreadable,
    ) -> None:
        """`on_unreadable` gets each batch that is skipped, on the reader's thread."""
        self.topic = topic
        self.group = group
        self.lags: dict[int, int] = {}
        """The number of unread records up to the log end, by partition."""
        properties = {**properties, "bootstrap.servers": bootstrap_servers}
        self._reads = PartitionReads(topic, properties, on_unreadable)
        self._watch = LogEndWatch(topic, properties)
        self.joined = asyncio.Event()
        self._stage = stage
        self._configuration = group_configuration(bootstrap_servers, group, properties)
        self._configuration["error_cb"] = self._log_error
        self._loop = asyncio.get_running_loop()
        self._handed = threading.Semaphore(_HANDED_MAX)
        self._stopping = threading.Event()
        # Requests of the loop, which the thread executes between two reads: a call to the client
        # during a read on another thread would deadlock.
        self._lock = threading.Lock()
        self._commits: dict[int, Committed] = {}
        self._held: set[int] = set()
        self._paused: set[int] = set()
        self._next_lag_s = 0.0
        self._active_s = 0.0
        """When records were read, positions committed, or partitions assigned the last time."""
        self._next_warning_s = 0.0
        self._blocked_s = 0.0

    async def run(self) -> None:
        """Read until `stop`, release all partitions, and leave the group.

        Raises:
            KafkaException: the client failed.
        """
        done = self._loop.create_future()
        thread = threading.Thread(target=self._run, args=(done,), name=f"{self.group}-reader")
        thread.daemon = True
        thread.start()
        try:
            await asyncio.shield(done)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop reading; `run` returns soon."""
        self._stopping.set()
        self._watch.wake()

    def commit(self, commits: Mapping[int, Committed]) -> None:
        """Commit offsets; returns at once.

        A failed commit is not retried: the next one is newer.
        """
        with self._lock:
            self._commits.update(commits)
        self._watch.wake()

    def hold(self, partition: int) -> None:
        """Pause a partition; fetched records still arrive."""
        self._held.add(partition)

    def release(self, partition: int) -> None:
        """Resume a paused partition."""
        self._held.discard(partition)

    @property
    def stalled(self) -> frozenset[int]:
        """The partitions that have made no progress for a minute, though there are records."""
        return self._reads.stalled

    def _run(self, done: "asyncio.Future[None]") -> None:
        """The body of the thread, which calls everything below."""
        try:
            self._read_until_stopped()
        except BaseException as error:  # raised again where `run` is awaited
            self._loop.call_soon_threadsafe(_end, done, error)
        else:
            self._loop.call_soon_threadsafe(_end, done, None)

    def _read_until_stopped(self) -> None:
        consumer = Consumer(self._configuration, logger=CLIENT_LOG)
        consumer.subscribe(
            [self.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        try:
            while not self._stopping.is_set():
                self._store_commits(consumer)
                if self._watch.is_active:
                    self._watch_log_end(consumer)
                    continue
                self._apply_holds(consumer)
                wait_s = _HELD_WAIT_S if self._paused else _WAIT_S
                self._hand_over(self._messages(consumer, wait_s))
                self._measure_lag(consumer)
                self._pass_unreadable(consumer)
        except (KafkaException, CancelledError):
            # A stop does not wait for an unavailable log, or for the stage.
            if not self._stopping.is_set():
                raise
        finally:
            self._watch.close()
            consumer.close()

    def _watch_log_end(self, consumer: Consumer) -> None:
        """Wait for records, and serve rebalances."""
        news = self._watch.find_news(_IDLE_WAIT_S)
        if news or self._held:
            self._stop_watching(consumer, news)
        else:
            # It returns no records: all partitions are paused.
            self._hand_over(self._messages(consumer, 0))

    def _stop_watching(self, consumer: Consumer, news: Collection[int] = ()) -> None:
        self._active_s = time.monotonic()
        self._watch.stop(consumer, news)

    def _store_commits(self, consumer: Consumer) -> None:
        with self._lock:
            commits, self._commits = self._commits, {}
        if commits:
            self._active_s = time.monotonic()
            with suppress(KafkaException):  # a rebalance is in progress
                consumer.commit(offsets=self._partition_offsets(commits), asynchronous=True)

    def _apply_holds(self, consumer: Consumer) -> None:
        held = set(self._held)
        if held == self._paused:
            return
        consumer.pause([TopicPartition(self.topic, each) for each in held - self._paused])
        consumer.resume([TopicPartition(self.topic, each) for each in self._paused - held])
        self._paused = held

    def _messages(self, consumer: Consumer, wait_s: float) -> "list[Message]":
        # `consume` waits for all it may return. So wait for one, then take what is available.
        first = consumer.poll(wait_s)
        if first is None:
            return []
        self._active_s = time.monotonic()
        return [first, *consumer.consume(RECORDS_MAX - 1, 0)]

    def _hand_over(self, messages: "Sequence[Message]") -> None:
        events: dict[int, list[LoggedEvent]] = {}
        for message in messages:
            error = message.error()
            partition = message.partition()
            if error is not None:
                if not self._reads.fail(partition, error, events):
                    self._log_error(error)
                continue
            assert partition is not None
            events.setdefault(partition, []).append(_event(message))
        self._reads.drop_unreliable(events)
        if not events:
            return
        began_s = time.monotonic()
        while not self._handed.acquire(timeout=_RETRY_S):
            if self._stopping.is_set():
                return
        self._blocked_s += time.monotonic() - began_s
        for partition, some in events.items():
            self._reads.positions[partition] = some[-1].offset + 1
        self._loop.call_soon_threadsafe(self._take, events)

    def _take(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        self._handed.release()
        self._stage.process_events(events)

    def _on_assign(self, consumer: Consumer, topic_partitions: list[TopicPartition]) -> None:
        if topic_partitions:
            self._stop_watching(consumer)
            partitions = [tp.partition for tp in topic_partitions]
            positions = self._positions(consumer, partitions)
            starts = self._begin(positions)
            begin_at = [TopicPartition(self.topic, each, start) for each, start in starts.items()]
            consumer.incremental_assign(begin_at)
            # A partition that was paused when it was revoked may have returned.
            consumer.resume(begin_at)
            self._reads.positions |= starts
            self._commit_now(
                consumer,
                {
                    partition: Committed(starts[partition], "")
                    for partition, position in positions.items()
                    if position.committed is None
                },
            )
            _log.info("partitions-assigned", extra={"group": self.group, "partitions": partitions})
        self._loop.call_soon_threadsafe(self.joined.set)

    def _on_revoke(self, consumer: Consumer, topic_partitions: list[TopicPartition]) -> None:
        partitions = [tp.partition for tp in topic_partitions]
        if partitions:
            self._stop_watching(consumer)
            commits = self._on_loop(lambda: self._stage.release_partitions(partitions))
            self._forget(partitions)
            self._commit_now(consumer, commits)
            _log.info("partitions-revoked", extra={"group": self.group, "partitions": partitions})
        consumer.incremental_unassign(topic_partitions)

    def _on_lost(self, consumer: Consumer, topic_partitions: list[TopicPartition]) -> None:
        partitions = [tp.partition for tp in topic_partitions]
        self._stop_watching(consumer)
        self._loop.call_soon_threadsafe(self._stage.drop_partitions, partitions)
        self._forget(partitions)
        _log.warning("partitions-lost", extra={"group": self.group, "partitions": partitions})
        consumer.incremental_unassign(topic_partitions)

    def _commit_now(self, consumer: Consumer, commits: Mapping[int, Committed]) -> None:
        """Commit synchronously: the start of a new group, or the end of revoked partitions."""
        if not commits:
            return
        try:
            consumer.commit(offsets=self._partition_offsets(commits), asynchronous=False)
        except KafkaException as refusal:
            # The next owner starts at the previous commit.
            _log.warning("commit-failed", extra=self._details(refusal))

    def _forget(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            with self._lock:
                self._commits.pop(partition, None)
            self.lags.pop(partition, None)
            self._reads.forget(partition)
            self._held.discard(partition)
            self._paused.discard(partition)

    def _begin(self, positions: Mapping[int, GroupPosition]) -> Mapping[int, int]:
        """Return the stage's start offsets; waits for them.

        Raises:
            CancelledError: the reader is stopped.
        """
        beginning = self._start(lambda: self._stage.start_partitions(positions))
        while not wait([beginning], _RETRY_S).done:
            if self._stopping.is_set():
                beginning.cancel()
        return beginning.result()

    def _positions(self, consumer: Consumer, partitions: Sequence[int]) -> dict[int, GroupPosition]:
        """Return committed offsets and bounds of partitions; waits for the answer."""
        while True:
            try:
                return fetch_positions(consumer, self.topic, partitions, _ANSWER_S)
            except KafkaException as refusal:
                _log.warning("log-unavailable", extra=self._details(refusal))
                if self._stopping.wait(_RETRY_S):
                    raise

    def _partition_offsets(self, commits: Mapping[int, Committed]) -> list[TopicPartition]:
        return [
            TopicPartition(self.topic, partition, commit.position, commit.note)
            for partition, commit in commits.items()
        ]

    def _on_loop(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._start(work).result()

    def _start(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        async def run() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def _measure_lag(self, consumer: Consumer) -> None:
        now_s = time.monotonic()
        if now_s < self._next_lag_s:
            return
        self._next_lag_s = now_s + _LAG_S
        self.lags |= self._reads.measure_lags(consumer, self._paused, now_s - self._blocked_s)
        if now_s - self._active_s >= QUIET_S and self._has_read_all():
            self._watch.start(consumer, self._reads.positions)

    def _has_read_all(self) -> bool:
        positions = self._reads.positions
        is_reading = positions and not self._held and not self._paused
        return bool(is_reading) and all(self.lags.get(each) == 0 for each in positions)

    def _pass_unreadable(self, consumer: Consumer) -> None:
        self._reads.pass_unreadable(consumer, self._paused, self._skip_to)

    def _skip_to(self, partition: int, offset: int) -> None:
        self._loop.call_soon_threadsafe(self._stage.skip_to, partition, offset)

    def _log_error(self, error: KafkaError) -> None:
        """Log that the log is unavailable; the client retries by itself."""
        now_s = time.monotonic()
        if now_s >= self._next_warning_s:
            self._next_warning_s = now_s + _ANSWER_S
            _log.warning("log-unavailable", extra=self._details(error))

    def _details(self, error: KafkaError | KafkaException) -> dict[str, str]:
        return {"group": self.group, "topic": self.topic, "reason": str(error)}


def _end(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _event(message: "Message") -> LoggedEvent:
    headers = dict(readable_headers(message) or ())
    event_id = header_text(headers.get("event-id"))
    offset = message.offset()
    assert offset is not None
    return LoggedEvent(
        offset,
        message.timestamp()[1],
        message.key(),
        event_id if is_presentable(event_id) else "",
        header_text(headers.get("event-type")),
        message.value() or b"",
        header_text(headers.get("origin")),
        headers.get(AUDIT_HEADER),
        account_of(headers),
    )


def group_configuration(
    bootstrap_servers: str, group: str, properties: Mapping[str, str]
) -> dict[str, Any]:
    """Return the client's configuration; `properties` override the choices here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": group,
        "group.id": group,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A client that takes an offset from a damaged batch must not begin at the earliest record.
        "auto.offset.reset": "error",
        "check.crcs": True,
        # How long the partitions of a dead process wait for another one.
        "session.timeout.ms": 10_000,
        # How long a last commit waits for a dead broker; the default is a minute.
        "socket.timeout.ms": 10_000,
        "heartbeat.interval.ms": 1_000,
        "queued.min.messages": 10_000,
        "queued.max.messages.kbytes": 16_384,
        # The default, a second, is how long a queue that was full stays unfilled.
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 250,
        "fetch.error.backoff.ms": 100,
        "topic.metadata.refresh.interval.ms": 10_000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        **properties,
    }
