"""Looks up the partitions of topics and their end offsets."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from logbroker.client.errors import BrokersUnavailable
from logbroker.client.librdkafka import make_consumer
from logbroker.client.log_bounds import fetch_log_ends
from logbroker.errors import RegistryUnavailable
from logbroker.groups import stored

_log: Final = logging.getLogger(__name__)

REQUEST_S: Final = 5.0
"""How long to wait for a response."""

SETTLING_S: Final = 0.5
"""Time until the second poll after a change in ZooKeeper, which brokers also have to process."""

Partitions = Mapping[str, Sequence[int]]
"""The sorted partition numbers of each topic; an unknown topic has none."""


class PartitionLookup:
    """Sends lookups to the brokers; thread-safe."""

    def __init__(self, settings: Mapping[str, Any], topics: Iterable[str]) -> None:
        # A consumer client can look up end offsets, and its lookups do not create topics.
        self._client = make_consumer(
            {**settings, "group.id": "logbroker-topics", "error_cb": _log_error}
        )
        self._topics = sorted(topics)

    def partitions(self) -> dict[str, list[int]]:
        """Return the current partitions of the topics.

        Raises:
            BrokersUnavailable: no broker answered, or the brokers could not list the partitions.
        """
        return {topic: self._partitions(topic) for topic in self._topics}

    def end_offsets(
        self, topic_partitions: Iterable[stored.TopicPartition]
    ) -> dict[stored.TopicPartition, int]:
        """Return the log end offset of each partition; omits those without an answer."""
        try:
            return fetch_log_ends(self._client, topic_partitions, REQUEST_S)
        except KafkaException as error:
            _log.warning("end offsets are unknown: %s", error)
            return {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _partitions(self, topic: str) -> list[int]:
        try:
            answer = self._client.list_topics(topic, timeout=REQUEST_S).topics[topic]
        except KafkaException as error:
            raise BrokersUnavailable(f"the partitions of {topic!r}: {error}") from error
        if answer.error is not None and answer.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise BrokersUnavailable(f"the partitions of {topic!r}: {answer.error.str()}")
        return sorted(answer.partitions)


class PartitionPoller:
    """A thread that polls the partitions and reports changes.

    It calls `watch` before each poll, so that a later change triggers the next poll. `on_failure`
    receives the error that ended the thread. The thread closes the lookup when it ends, because it
    must not be closed while in use.
    """

    def __init__(
        self,
        lookup: PartitionLookup,
        interval_s: float,
        watch: Callable[[Callable[[], None]], None],
        on_change: Callable[[Partitions], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._lookup = lookup
        self._interval_s = interval_s
        self._watch = watch
        self._on_change = on_change
        self._on_failure = on_failure
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="partition-poll", daemon=True)

    def start(self, known: Partitions) -> None:
        """Start the thread; `known` are the partitions of the first lookup."""
        self._known = known
        self._thread.start()

    def poll_soon(self) -> None:
        """Poll without waiting for the next interval; thread-safe."""
        self._wake.set()

    def stop(self) -> None:
        """Request the end of the thread, the only user of the lookup from now on."""
        self._is_stopping = True
        self._wake.set()

    def _run(self) -> None:
        try:
            self._poll()
        except Exception as error:
            self._on_failure(error)
        finally:
            self._lookup.close()

    def _poll(self) -> None:
        pause_s = 0.0
        while not self._is_stopping:
            is_woken = self._wake.wait(pause_s)
            self._wake.clear()
            if not self._is_stopping:
                self._poll_once()
            pause_s = min(SETTLING_S, self._interval_s) if is_woken else self._interval_s

    def _poll_once(self) -> None:
        try:
            self._watch(self.poll_soon)
        except RegistryUnavailable as error:
            _log.warning("cannot watch the brokers: %s", error)
        try:
            partitions = self._lookup.partitions()
        except BrokersUnavailable as error:
            _log.warning("partition poll failed: %s", error)
            return
        if partitions != self._known:
            self._known = partitions
            self._on_change(partitions)


def _log_error(error: KafkaError) -> None:
    _log.warning("looking at topics: %s", error.str())
