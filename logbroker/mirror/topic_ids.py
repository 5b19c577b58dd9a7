"""Notices that a topic of the source was deleted and made anew: its offsets mean other records."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    TopicDescription,
)

ANSWER_S: Final = 5.0
LOOK_S: Final = 5.0
"""Time between two looks; what was copied meanwhile of a new topic is copied again."""

_NO_ID: Final = "A" * 22
"""What brokers say that know of no ids: sixteen zero bytes in base64."""

Asked = Mapping[str, "Future[TopicDescription]"]


class TopicIds:
    """The ids of topics as they are when this is made; waits for the answer.

    A name outlives a topic, an id does not (KIP-516). Brokers before Kafka 2.8 have none; then
    nothing is noticed.

    Raises:
        KafkaException: the source does not answer.
    """

    def __init__(self, source: AdminClient, topics: Sequence[str]) -> None:
        self._source = source
        self._asked: Asked = {}
        self._next_s = time.monotonic() + LOOK_S
        self._ids = {name: _id(each) for name, each in self._ask(topics).items()}

    def of(self, topic: str) -> str:
        """The id of a topic; empty where there is none."""
        return self._ids.get(topic, "")

    def replaced(self) -> str | None:
        """A topic that has another id by now, as far as is known without waiting."""
        if all(each.done() for each in self._asked.values()):
            asked, self._asked = self._asked, {}
            for topic, each in asked.items():
                if each.exception() is None and _id(each) not in ("", self.of(topic)):
                    return topic
            if time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + LOOK_S
                self._asked = self._ask(list(self._ids))
        return None

    def _ask(self, topics: Sequence[str]) -> Asked:
        if not topics:
            return {}
        asked: Asked = self._source.describe_topics(
            TopicCollection(list(topics)), request_timeout=ANSWER_S
        )
        return asked


def _id(asked: "Future[TopicDescription]") -> str:
    try:
        told = str(asked.result().topic_id)
    except KafkaException as refusal:
        # One that is gone again has no id, and no records either.
        if refusal.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
            return ""
        raise
    return "" if told == _NO_ID else told
