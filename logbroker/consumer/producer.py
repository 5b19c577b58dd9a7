"""The paper's producer: sets of messages, each to one partition."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from logbroker.client.errors import ClientClosed, SendFailed
from logbroker.client.partitioner import partition_for_key
from logbroker.consumer.settings import reserved
from logbroker.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)

_POLL_S: Final = 0.1

_FULL_QUEUE_S: Final = 0.01
"""Time between two attempts to add to a full queue; thousands of messages leave in that time."""

PARTITIONS_AGE_S: Final = 60.0
"""How long the partitions of a topic are cached; keys move when partitions are added."""

RESERVED: Final = frozenset(
    (
        "bootstrap.servers",
        "acks",
        "enable.idempotence",
        "delivery.timeout.ms",
        "error_cb",
        "on_delivery",
        "partitioner",
    )
)
"""Settings that the producer's guarantees depend on."""

Partitioner = Callable[[bytes, int], int]
"""Returns the partition of a key, in [0, partitions)."""


class NewMessage(NamedTuple):
    """A message to send; without a timestamp it gets the time of sending."""

    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class SentSet(NamedTuple):
    """The position of an acknowledged set.

    An offset is None if the log did not return it, as may happen for a message that was sent twice.
    """

    topic: str
    partition: int
    offsets: tuple[int | None, ...]


class Producer:
    """Sends sets of messages; thread-safe; a context manager that closes at its end.

    Every message is acknowledged by all in-sync replicas, and stored once even if it is sent again.
    The messages of a set go to one partition in order: to the partition of their key by
    `partitioner` (Java's murmur2 by default), or to a random one.

    `delivery_timeout_s` is the time after which an unacknowledged message has failed.
    `client_settings` are for librdkafka, such as `compression.type` or `linger.ms`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        partitioner: Partitioner = partition_for_key,
        delivery_timeout_s: float = 120.0,
        client_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare the client; nothing is sent before the first set.

        Raises:
            ConfigurationError: a setting is invalid.
        """
        given = dict(client_settings or {})
        ConfigurationError.raise_if_any(_problems(bootstrap_servers, delivery_timeout_s, given))
        self._partitioner = partitioner
        self._timeout_s = delivery_timeout_s
        self._config = given | {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": round(delivery_timeout_s * 1_000),
            "error_cb": self._record_error,
        }
        self._partitions: dict[str, _CachedPartitions] = {}
        self._is_fatal = False
        self._is_closed = threading.Event()
        # One set at a time, so that sets of one partition do not interleave.
        self._sending = threading.Lock()
        try:
            self._client = confluent_kafka.Producer(self._config, logger=_log)
        except KafkaException as error:
            raise ConfigurationError(f"client_settings: {error.args[0].str()}") from None
        self._poller = threading.Thread(target=self._poll, name="producer-poll", daemon=True)
        self._poller.start()

    def __enter__(self) -> Self:
        """Return the producer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the producer."""
        self.close()

    def send(
        self, topic: str, messages: Sequence[bytes | NewMessage], key: bytes | None = None
    ) -> "Future[SentSet]":
        """Send a set; the returned future completes when all of it is acknowledged.

        The future's `result` raises SendFailed if a message was not acknowledged. The call blocks
        while the topic does not exist yet, and while the queue is full.

        Raises:
            ValueError: the set is empty, or the partitioner returned an invalid partition.
            SendFailed: the topic does not exist, or no broker answers; nothing was sent.
            ClientClosed: the producer is closed.
        """
        return self.send_each(topic, messages, len(messages), key)

    def send_each(
        self, topic: str, messages: Iterable[bytes | NewMessage], count: int, key: bytes | None
    ) -> "Future[SentSet]":
        """Send `count` messages as `send` does; they may be generated one by one.

        Raises:
            ValueError: the set is empty, or the partitioner returned an invalid partition.
            SendFailed: the topic does not exist, or no broker answers; nothing was sent.
            ClientClosed: the producer is closed.
        """
        if not count:
            raise ValueError("a set must have at least one message")
        deadline_s = time.monotonic() + self._timeout_s
        partition = self._choose_partition(topic, key, count, deadline_s)
        sending = _PendingSet(topic, partition, count)
        with self._sending:
            for index, message in enumerate(messages):
                new = NewMessage(message) if isinstance(message, bytes) else message
                self._enqueue(sending, index, new, key, deadline_s)
        return sending.future

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all messages are acknowledged or failed; return False after `timeout_s`."""
        return self._client.flush(-1 if timeout_s is None else timeout_s) == 0

    def close(self) -> None:
        """Wait for unacknowledged messages, and stop; idempotent."""
        if self._is_closed.is_set():
            return
        # Returns at the latest after the delivery timeout, when the rest has failed.
        self.flush()
        self._is_closed.set()
        self._poller.join()

    def _choose_partition(
        self, topic: str, key: bytes | None, messages: int, deadline_s: float
    ) -> int:
        known = self._cached_partitions(topic, messages, deadline_s)
        if key is None:
            return random.choice(known.available)  # noqa: S311  spreads load, keeps no secret
        partition = self._partitioner(key, known.total)
        if not 0 <= partition < known.total:
            raise ValueError(
                f"the partitioner returned {partition} for {key!r}; "
                f"allowed for {topic!r}: 0 to {known.total - 1}"
            )
        return partition

    def _cached_partitions(
        self, topic: str, messages: int, deadline_s: float
    ) -> "_CachedPartitions":
        known = self._partitions.get(topic)
        if known is not None and time.monotonic() < known.until_s:
            return known
        while True:
            if self._is_closed.is_set():
                raise ClientClosed("the producer is closed")
            try:
                known = self._fetch_partitions(topic, deadline_s)
                break
            except _TopicUnavailable as error:
                if time.monotonic() >= deadline_s:
                    failures = dict.fromkeys(range(messages), str(error))
                    raise SendFailed(topic, messages, failures) from None
                time.sleep(_POLL_S)
        self._partitions[topic] = known
        return known

    def _fetch_partitions(self, topic: str, deadline_s: float) -> "_CachedPartitions":
        left_s = max(_POLL_S, deadline_s - time.monotonic())
        try:
            answer = self._client.list_topics(topic, timeout=left_s).topics[topic]
        except KafkaException as error:
            raise _TopicUnavailable(str(error.args[0].str())) from None
        if answer.error is not None:
            raise _TopicUnavailable(answer.error.str())
        led = [number for number, each in answer.partitions.items() if each.leader >= 0]
        return _CachedPartitions(
            len(answer.partitions),
            # Without any leader, the message waits until one returns.
            led or list(answer.partitions),
            time.monotonic() + PARTITIONS_AGE_S,
        )

    def _enqueue(
        self,
        sending: "_PendingSet",
        index: int,
        message: NewMessage,
        key: bytes | None,
        deadline_s: float,
    ) -> None:
        while True:
            if self._is_closed.is_set():
                raise ClientClosed("the producer is closed")
            try:
                self._client.produce(
                    sending.topic,
                    message.value,
                    key,
                    sending.partition,
                    on_delivery=partial(sending.record_delivery, index),
                    # librdkafka interprets 0 as the current time.
                    timestamp=message.timestamp_ms or 0,
                    headers=list(message.headers),
                )
            except BufferError as full:
                if time.monotonic() >= deadline_s:
                    sending.record_failure(index, str(full))
                    return
                time.sleep(_FULL_QUEUE_S)
            except KafkaException as refusal:
                sending.record_failure(index, refusal.args[0].str())
                return
            else:
                return

    def _poll(self) -> None:
        while not self._is_closed.is_set():
            self._client.poll(_POLL_S)
            if self._is_fatal:
                self._replace_client()

    def _record_error(self, error: KafkaError) -> None:
        self._is_fatal = self._is_fatal or error.fatal()
        level = logging.ERROR if error.fatal() else logging.WARNING
        _log.log(level, "client error while producing: %s", error.str())

    def _replace_client(self) -> None:
        """Replace a client with a fatal error: its broken sequence prevents all further sends."""
        broken, self._client = self._client, confluent_kafka.Producer(self._config, logger=_log)
        self._is_fatal = False
        broken.purge()
        broken.flush(_POLL_S)


class _TopicUnavailable(Exception):
    """The partitions of a topic are unknown at present."""


class _CachedPartitions(NamedTuple):
    """The number of partitions, the writable ones, and the expiry of the cache entry."""

    total: int
    available: list[int]
    until_s: float


class _PendingSet:
    """The acknowledgements of one set, which arrive on the polling thread."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        self.topic = topic
        self.partition = partition
        self.future: Future[SentSet] = Future()
        # A sent set cannot be cancelled.
        self.future.set_running_or_notify_cancel()
        self._offsets: list[int | None] = [None] * count
        self._failures: dict[int, str] = {}
        self._outstanding = count
        self._lock = threading.Lock()

    def record_delivery(
        self, index: int, error: KafkaError | None, message: "confluent_kafka.Message | None"
    ) -> None:
        """Record the acknowledgement or the failure of the message at `index`."""
        if error is not None:
            self.record_failure(index, error.str())
            return
        offset = None if message is None else message.offset()
        # A negative offset means that the log did not return one.
        self._offsets[index] = offset if offset is not None and offset >= 0 else None
        self._count_down()

    def record_failure(self, index: int, reason: str) -> None:
        """Record that the message at `index` was not acknowledged."""
        self._failures[index] = reason
        self._count_down()

    def _count_down(self) -> None:
        with self._lock:
            self._outstanding -= 1
            if self._outstanding:
                return
        if self._failures:
            self.future.set_exception(SendFailed(self.topic, len(self._offsets), self._failures))
        else:
            self.future.set_result(SentSet(self.topic, self.partition, tuple(self._offsets)))


def _problems(servers: str, timeout_s: float, client_settings: Mapping[str, Any]) -> list[str]:
    problems = list(reserved(client_settings, RESERVED))
    if not servers:
        problems.append("bootstrap_servers is empty")
    if not timeout_s > 0:
        problems.append(f"delivery_timeout_s is {timeout_s!r}; it must be above 0")
    return problems
