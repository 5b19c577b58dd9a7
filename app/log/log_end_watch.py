"""Waits for records of a quiet topic, with few requests."""

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from logbroker.errors import LogbrokerError

if TYPE_CHECKING:
    from logbroker.client.raw import LongPoll

_log: Final = logging.getLogger(__name__)

_ANSWER_S: Final = 2.0
"""How long a broker may take to answer; nothing else of the reader happens meanwhile."""

_RETRY_S: Final = 60.0
"""The pause after a failure, as with an authentication that only the stock client supports."""


class LogEndWatch:
    """Pauses a client while there is nothing to read, and finds out when there is.

    A client of librdkafka has one fetch in flight at each broker, which delays partitions that are
    resumed or whose queue was full. So its fetches are short, and many. Here they are long.
    Only `wake` may be called on other threads.
    """

    def __init__(self, topic: str, properties: Mapping[str, str]) -> None:
        """`properties` are those of the client, with its bootstrap servers."""
        self._topic = topic
        self._properties = properties
        self._positions: dict[int, int] = {}
        self._poll: LongPoll | None = None
        self._next_s = 0.0

    @property
    def is_active(self) -> bool:
        """Whether partitions are watched."""
        return self._poll is not None

    def start(self, consumer: Consumer, positions: Mapping[int, int]) -> None:
        """Pause a client that has read up to these offsets, by partition, and watch for more.

        Without success it continues to read.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        # It imports kafka-python, which a busy reader does not need.
        from logbroker.client import raw

        watched = {raw.TopicPartition(self._topic, key): start for key, start in positions.items()}
        try:
            cluster = raw.RawCluster(self._properties, timeout_s=_ANSWER_S)
            self._poll = raw.LongPoll(cluster, watched)
        except LogbrokerError as error:
            self._next_s = now_s + _RETRY_S
            reason = "; ".join(str(error).splitlines())
            _log.debug("log-end-not-watched", extra={"topic": self._topic, "reason": reason})
        else:
            self._positions = dict(positions)
            consumer.pause([TopicPartition(self._topic, each) for each in positions])

    def find_news(self, timeout_s: float) -> set[int]:
        """Wait up to `timeout_s` or until `wake`; the partitions with records, or with an error."""
        assert self._poll is not None
        return {each.partition for each in self._poll.find_news(timeout_s)}

    def wake(self) -> None:
        """End the wait of `find_news`."""
        if (poll := self._poll) is not None:
            poll.wake()

    def stop(self, consumer: Consumer, news: Collection[int]) -> None:
        """Resume the client, if it is paused; it reads the partitions `news` at once."""
        if self._poll is None:
            return
        self.close()
        consumer.resume([TopicPartition(self._topic, each) for each in self._positions])
        for partition in news:
            # Otherwise the client's thread may sleep for up to a second before its next fetch.
            with suppress(KafkaException):
                consumer.seek(TopicPartition(self._topic, partition, self._positions[partition]))

    def close(self) -> None:
        """Watch nothing any more."""
        poll, self._poll = self._poll, None
        if poll is not None:
            poll.close()
