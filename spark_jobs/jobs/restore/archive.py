"""The topic that restored records go to.

It keeps what is in it until it is told to delete it: by their own time, restored records are older
than any retention allows, and the log would delete them at once.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from logbroker.client.errors import UnknownTopic
from logbroker.client.raw import EARLIEST, LATEST, RawCluster, TopicDescription, TopicPartition
from spark_jobs.errors import InvalidOption, SourceFailed
from spark_jobs.jobs.restore.records import Record, headers_to_publish
from spark_jobs.log.client_errors import translated

SETTINGS: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}

_TIMEOUT_S: Final = 60.0
_DELIVERY_MS: Final = 120_000
_POLL_S: Final = 0.1


class Bounds(NamedTuple):
    """The offsets `[low, high)` that a partition holds."""

    low: int
    high: int


class ArchiveTopic:
    """Makes the topic, publishes to it, and deletes what is not needed any more."""

    def __init__(self, topic: str, properties: Mapping[str, str], replication_factor: int) -> None:
        self.topic = topic
        self._properties = dict(properties)
        self._replication_factor = replication_factor
        client: dict[str, Any] = {**self._properties, "log_level": 0}
        sending: dict[str, Any] = {
            "client.id": "rewind-restore",
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "snappy",
            "linger.ms": 20,
            "delivery.timeout.ms": _DELIVERY_MS,
            **client,
        }
        try:
            self._admin = AdminClient(client)
            self._producer = Producer(sending)
        except KafkaException as refusal:
            raise InvalidOption(f"the client's properties: {refusal.args[0].str()}") from refusal

    def ensure(self, like: str) -> TopicDescription:
        """Make the topic unless it is there, with as many partitions as `like`; what `like` is.

        Raises:
            InvalidOption: it is there, and cannot take the records of `like`, or would not keep
                them.
            SourceFailed: the log does not answer, or would not make it.
        """
        with translated("topics cannot be told"), RawCluster(self._properties) as cluster:
            model = cluster.topics([like])[like]
            partitions = len(model.partitions)
            try:
                found = len(cluster.topics([self.topic])[self.topic].partitions)
            except UnknownTopic:
                self._create(partitions)
                return model
        if found < partitions:
            raise InvalidOption(
                f"topic {self.topic} has {found} partitions, and {like} has {partitions}: records "
                "go where they were, so it must have as many"
            )
        self._check_settings()
        return model

    def _create(self, partitions: int) -> None:
        topic = NewTopic(self.topic, partitions, self._replication_factor, config=SETTINGS)
        made = self._admin.create_topics([topic], operation_timeout=_TIMEOUT_S)[self.topic]
        try:
            made.result(_TIMEOUT_S)
        except KafkaException as refusal:
            error: KafkaError = refusal.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SourceFailed(f"{self.topic} cannot be made: {error.str()}") from refusal

    def _check_settings(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            answer = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)
            settings = answer[resource].result(_TIMEOUT_S)
        except KafkaException as refusal:
            reason = refusal.args[0].str()
            raise SourceFailed(f"the settings of {self.topic} are not told: {reason}") from refusal
        for name, needed in SETTINGS.items():
            if name in settings and settings[name].value != needed:
                raise InvalidOption(
                    f"topic {self.topic} has {name}={settings[name].value}; needed is {needed}, or "
                    "restored records are lost or moved in time"
                )

    def bounds(self) -> dict[int, Bounds]:
        """What each partition holds; nothing without the topic.

        Raises:
            SourceFailed: the log does not answer.
        """
        with translated("offsets cannot be told"), RawCluster(self._properties) as cluster:
            try:
                plan = cluster.topics([self.topic])[self.topic]
            except UnknownTopic:
                return {}
            places = [TopicPartition(self.topic, each) for each in plan.partitions]
            lows = cluster.offsets(dict.fromkeys(places, EARLIEST))
            highs = cluster.offsets(dict.fromkeys(places, LATEST))
        return {each.partition: Bounds(lows[each] or 0, highs[each] or 0) for each in places}

    def publish(self, key: bytes, partition: int, records: Iterable[Record], place: str) -> int:
        """Publish records to a partition, in their order; how many, once all are acknowledged.

        Raises:
            SourceFailed: the log did not take all of them.
        """
        failures: list[str] = []

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error.str())

        count = 0
        for record in records:
            self._hand_over(
                value=record.value,
                key=key,
                partition=partition,
                # The log knows no time before 1970.
                timestamp=max(0, record.timestamp_ms),
                headers=headers_to_publish(record, place),
                on_delivery=note,
            )
            count += 1
            if failures:
                break
        left = self._producer.flush(2 * _DELIVERY_MS / 1_000)
        if failures or left:
            reason = failures[0] if failures else "no answer"
            raise SourceFailed(f"{self.topic} did not take all records: {reason}")
        return count

    def _hand_over(self, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(self.topic, **record)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as refusal:
                raise SourceFailed(f"{self.topic}: {refusal.args[0].str()}") from refusal
            else:
                return

    def delete_below(self, offsets: Mapping[int, int]) -> None:
        """Delete the records below these offsets, by partition.

        Raises:
            SourceFailed: the log did not, or not all.
        """
        if not offsets:
            return
        places = [Place(self.topic, partition, offset) for partition, offset in offsets.items()]
        answers = self._admin.delete_records(places, request_timeout=_TIMEOUT_S)
        for answer in answers.values():
            try:
                answer.result(_TIMEOUT_S)
            except KafkaException as refusal:
                reason = refusal.args[0].str()
                raise SourceFailed(f"{self.topic} cannot be cleared: {reason}") from refusal
