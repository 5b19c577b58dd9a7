"""Which partitions the topics have, and where they end, as the brokers tell."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from logbroker.client.errors import BrokersUnavailable
from logbroker.client.librdkafka import make_consumer
from logbroker.errors import RegistryUnavailable
from logbroker.groups import stored

_log: Final = logging.getLogger(__name__)

REQUEST_S: Final = 5.0
"""How long to wait for an answer."""

SETTLING_S: Final = 0.5
"""Time until the second look after ZooKeeper told of a change, which brokers follow as we do."""

_LATEST: Final = -1
"""What Kafka's ListOffsets takes for the time after the newest message."""

Partitions = Mapping[str, Sequence[int]]
"""The numbers of the partitions of each topic, sorted; a topic that is not there has none."""


class PartitionLookup:
    """Asks the brokers; safe on any threads."""

    def __init__(self, settings: Mapping[str, Any], topics: Iterable[str]) -> None:
        # A consumer, as it can ask for where partitions end, and makes no topic by asking.
        self._client = make_consumer(
            {**settings, "group.id": "logbroker-topics", "error_cb": _note_error}
        )
        self._topics = sorted(topics)

    def partitions(self) -> dict[str, list[int]]:
        """The partitions of the topics now.

        Raises:
            BrokersUnavailable: no broker answered, or those that did cannot tell.
        """
        return {topic: self._partitions(topic) for topic in self._topics}

    def ends(self, places: Iterable[stored.TopicPartition]) -> dict[stored.TopicPartition, int]:
        """The offset of the next message of each partition; nothing where one cannot be asked."""
        asked = [TopicPartition(topic, partition, _LATEST) for topic, partition in places]
        try:
            answers = self._client.offsets_for_times(asked, timeout=REQUEST_S)
        except KafkaException as error:
            _log.warning("where partitions end is not known yet: %s", error)
            return {}
        return {
            (each.topic, each.partition): each.offset
            for each in answers
            if each.error is None and each.offset >= 0
        }

    def close(self) -> None:
        """Leave the brokers."""
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
    """A thread that asks for the partitions again and again, and tells when they have changed.

    `watch` is called before each look, so that a change after it brings the next look about.
    `failed` hears of an error that ended the thread.
    The directory is closed at the thread's end: it must not be while somebody waits in it.
    """

    def __init__(
        self,
        directory: PartitionLookup,
        interval_s: float,
        watch: Callable[[Callable[[], None]], None],
        changed: Callable[[Partitions], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._directory = directory
        self._interval_s = interval_s
        self._watch = watch
        self._changed = changed
        self._failed = failed
        self._wake = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="partition-poll", daemon=True)

    def start(self, known: Partitions) -> None:
        """Begin; `known` are the partitions as the first look had them."""
        self._known = known
        self._thread.start()

    def look(self) -> None:
        """Look now; safe on any thread."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread, which may still wait for a broker; nobody else uses the directory now."""
        self._is_over = True
        self._wake.set()

    def _run(self) -> None:
        try:
            self._poll()
        except Exception as error:
            self._failed(error)
        finally:
            self._directory.close()

    def _poll(self) -> None:
        pause_s = 0.0
        while not self._is_over:
            is_woken = self._wake.wait(pause_s)
            self._wake.clear()
            if not self._is_over:
                self._look()
            pause_s = min(SETTLING_S, self._interval_s) if is_woken else self._interval_s

    def _look(self) -> None:
        try:
            self._watch(self.look)
        except RegistryUnavailable as error:
            _log.warning("brokers are not watched: %s", error)
        try:
            partitions = self._directory.partitions()
        except BrokersUnavailable as error:
            _log.warning("partitions are as they were: %s", error)
            return
        if partitions != self._known:
            self._known = partitions
            self._changed(partitions)


def _note_error(error: KafkaError) -> None:
    _log.warning("looking at topics: %s", error.str())
