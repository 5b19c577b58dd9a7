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
"""How long to wait before another look at a full queue; in that time thousands leave it."""

PARTITIONS_AGE_S: Final = 60.0
"""How long the partitions of a topic are taken for known; keys move when there are more."""

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
"""What the producer's own guarantees rest on."""

Partitioner = Callable[[bytes, int], int]
"""Gives a key's partition among so many: a number in [0, partitions)."""


class NewMessage(NamedTuple):
    """A message to send; without a time of its own it gets the one of its sending."""

    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class SentSet(NamedTuple):
    """Where an acknowledged set lies.

    An offset is None where the log has the message and does not say where, as it may be for one
    that was sent twice.
    """

    topic: str
    partition: int
    offsets: tuple[int | None, ...]


class Producer:
    """Sends sets of messages; a context manager that closes at its end. Safe on several threads.

    Every message is acknowledged by all replicas in sync, and is written once although it may be
    sent again. The messages of one set go to one partition in their order: that of their key by
    `partitioner`, which is Java's murmur2 if none is given, or else one at random.

    `delivery_timeout_s` is how long a message may take until it has failed. `client_settings` are
    for librdkafka, such as `compression.type` or `linger.ms`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        partitioner: Partitioner = partition_for_key,
        delivery_timeout_s: float = 120.0,
        client_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; nothing is sent before the first set.

        Raises:
            ConfigurationError: a setting cannot be.
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
            "error_cb": self._note_error,
        }
        self._partitions: dict[str, _CachedPartitions] = {}
        self._is_fatal = False
        self._is_closed = threading.Event()
        # One set after the other, so that two of one partition do not mingle.
        self._sending = threading.Lock()
        try:
            self._client = confluent_kafka.Producer(self._config, logger=_log)
        except KafkaException as error:
            raise ConfigurationError(f"client_settings: {error.args[0].str()}") from None
        self._poller = threading.Thread(target=self._poll, name="producer-poll", daemon=True)
        self._poller.start()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def send(
        self, topic: str, messages: Sequence[bytes | NewMessage], key: bytes | None = None
    ) -> "Future[SentSet]":
        """Hand a set over; the future has where it lies once all of it is acknowledged.

        The future's `result` raises SendFailed if some of it was not. It waits for a topic that is
        not there, which the brokers may be making, and while too much is under way.

        Raises:
            ValueError: the set is empty, or the partitioner's answer is no partition.
            SendFailed: the topic is not there, or no broker answers; nothing was sent.
            ClientClosed: the producer is closed.
        """
        return self.send_each(topic, messages, len(messages), key)

    def send_each(
        self, topic: str, messages: Iterable[bytes | NewMessage], count: int, key: bytes | None
    ) -> "Future[SentSet]":
        """As `send`, with `count` messages that may be made one by one, as they are handed over.

        Raises:
            ValueError: the set is empty, or the partitioner's answer is no partition.
            SendFailed: the topic is not there, or no broker answers; nothing was sent.
            ClientClosed: the producer is closed.
        """
        if not count:
            raise ValueError("a set has one message at least")
        deadline_s = time.monotonic() + self._timeout_s
        partition = self._choose(topic, key, count, deadline_s)
        sending = _PendingSet(topic, partition, count)
        with self._sending:
            for place, message in enumerate(messages):
                new = NewMessage(message) if isinstance(message, bytes) else message
                self._hand_over(sending, place, new, key, deadline_s)
        return sending.future

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is under way any more, `timeout_s` at most; whether that is so."""
        return self._client.flush(-1 if timeout_s is None else timeout_s) == 0

    def close(self) -> None:
        """Wait for what is under way, and stop; closing again changes nothing."""
        if self._is_closed.is_set():
            return
        # Nothing is under way for longer: by then it has failed.
        self.flush()
        self._is_closed.set()
        self._poller.join()

    def _choose(self, topic: str, key: bytes | None, messages: int, deadline_s: float) -> int:
        known = self._known(topic, messages, deadline_s)
        if key is None:
            return random.choice(known.available)  # noqa: S311  spreads load, keeps no secret
        partition = self._partitioner(key, known.total)
        if not 0 <= partition < known.total:
            raise ValueError(
                f"the partitioner put {key!r} in {partition}; {topic!r} has 0 to {known.total - 1}"
            )
        return partition

    def _known(self, topic: str, messages: int, deadline_s: float) -> "_CachedPartitions":
        known = self._partitions.get(topic)
        if known is not None and time.monotonic() < known.until_s:
            return known
        while True:
            if self._is_closed.is_set():
                raise ClientClosed("the producer is closed")
            try:
                known = self._ask_partitions(topic, deadline_s)
                break
            except _TopicUnavailable as error:
                if time.monotonic() >= deadline_s:
                    failures = dict.fromkeys(range(messages), str(error))
                    raise SendFailed(topic, messages, failures) from None
                time.sleep(_POLL_S)
        self._partitions[topic] = known
        return known

    def _ask_partitions(self, topic: str, deadline_s: float) -> "_CachedPartitions":
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
            # Without any leader, one must come back while the message waits.
            led or list(answer.partitions),
            time.monotonic() + PARTITIONS_AGE_S,
        )

    def _hand_over(
        self,
        sending: "_PendingSet",
        place: int,
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
                    on_delivery=partial(sending.settle, place),
                    # Zero is the client's word for now.
                    timestamp=message.timestamp_ms or 0,
                    headers=list(message.headers),
                )
            except BufferError as full:
                if time.monotonic() >= deadline_s:
                    sending.fail(place, str(full))
                    return
                time.sleep(_FULL_QUEUE_S)
            except KafkaException as refusal:
                sending.fail(place, refusal.args[0].str())
                return
            else:
                return

    def _poll(self) -> None:
        while not self._is_closed.is_set():
            self._client.poll(_POLL_S)
            if self._is_fatal:
                self._replace_client()

    def _note_error(self, error: KafkaError) -> None:
        self._is_fatal = self._is_fatal or error.fatal()
        level = logging.ERROR if error.fatal() else logging.WARNING
        _log.log(level, "producing: %s", error.str())

    def _replace_client(self) -> None:
        """Begin anew: an idempotent producer whose sequence is broken never sends again."""
        broken, self._client = self._client, confluent_kafka.Producer(self._config, logger=_log)
        self._is_fatal = False
        broken.purge()
        broken.flush(_POLL_S)


class _TopicUnavailable(Exception):
    """The partitions of a topic cannot be told at present."""


class _CachedPartitions(NamedTuple):
    """How many partitions there are, which can be written to, and until when this is taken so."""

    total: int
    available: list[int]
    until_s: float


class _PendingSet:
    """The acknowledgements of one set; they come in on the thread that polls."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        self.topic = topic
        self.partition = partition
        self.future: Future[SentSet] = Future()
        # Whoever waits for it cannot call it back.
        self.future.set_running_or_notify_cancel()
        self._offsets: list[int | None] = [None] * count
        self._failures: dict[int, str] = {}
        self._missing = count
        self._settling = threading.Lock()

    def settle(
        self, place: int, error: KafkaError | None, message: "confluent_kafka.Message | None"
    ) -> None:
        """Note what became of the message at `place`."""
        if error is not None:
            self.fail(place, error.str())
            return
        offset = None if message is None else message.offset()
        # A negative one stands for an offset that the log did not say.
        self._offsets[place] = offset if offset is not None and offset >= 0 else None
        self._count_down()

    def fail(self, place: int, reason: str) -> None:
        """Note that the message at `place` was not acknowledged."""
        self._failures[place] = reason
        self._count_down()

    def _count_down(self) -> None:
        with self._settling:
            self._missing -= 1
            if self._missing:
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
