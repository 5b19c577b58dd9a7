"""The topic of restored records.

It has unlimited retention: by their own timestamps, restored records are older than any retention
period, and the log would delete them at once.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as PartitionOffset
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from logbroker.client.errors import UnknownTopic
from logbroker.client.raw import EARLIEST, LATEST, RawCluster, TopicDescription, TopicPartition
from spark_jobs.errors import InvalidOption, SourceFailed
from spark_jobs.jobs.restore.records import ArchivedRecord, archive_headers
from spark_jobs.log.client_errors import translate_client_errors
from spark_jobs.log.publishing import TopicPublisher
from spark_jobs.offsets.resolution import OffsetBounds

SETTINGS: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}

PUBLISHER_SETTINGS: Final = {
    "client.id": "rewind-restore",
    "compression.type": "snappy",
    "linger.ms": 20,
}
_TIMEOUT_S: Final = 60.0


class ArchiveTopic:
    """Creates the topic, publishes to it, and deletes records that are no longer needed."""

    def __init__(self, topic: str, properties: Mapping[str, str], replication_factor: int) -> None:
        self.topic = topic
        self._properties = dict(properties)
        self._replication_factor = replication_factor
        client: dict[str, Any] = {**self._properties, "log_level": 0}
        try:
            self._admin = AdminClient(client)
        except KafkaException as refusal:
            raise InvalidOption(f"invalid client properties: {refusal.args[0].str()}") from refusal
        self._publisher = TopicPublisher(topic, properties, PUBLISHER_SETTINGS)

    def ensure_topic(self, like: str) -> TopicDescription:
        """Create the topic with the partitions of `like` if it is missing; the metadata of `like`.

        Raises:
            InvalidOption: the topic exists with fewer partitions or other settings.
            SourceFailed: the log does not answer, or did not create the topic.
        """
        with (
            translate_client_errors("cannot look up topics"),
            RawCluster(self._properties) as cluster,
        ):
            model = cluster.topics([like])[like]
            partitions = len(model.partitions)
            try:
                found = len(cluster.topics([self.topic])[self.topic].partitions)
            except UnknownTopic:
                self._create(partitions)
                return model
        if found < partitions:
            raise InvalidOption(
                f"topic {self.topic} has {found} partitions; at least the {partitions} of {like} "
                "are required, because records keep their partition"
            )
        self._check_settings()
        return model

    def _create(self, partitions: int) -> None:
        topic = NewTopic(self.topic, partitions, self._replication_factor, config=SETTINGS)
        created = self._admin.create_topics([topic], operation_timeout=_TIMEOUT_S)[self.topic]
        try:
            created.result(_TIMEOUT_S)
        except KafkaException as refusal:
            error: KafkaError = refusal.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SourceFailed(
                    f"topic {self.topic} was not created: {error.str()}"
                ) from refusal

    def _check_settings(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        try:
            answer = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)
            settings = answer[resource].result(_TIMEOUT_S)
        except KafkaException as refusal:
            reason = refusal.args[0].str()
            raise SourceFailed(
                f"cannot look up the settings of {self.topic}: {reason}"
            ) from refusal
        for name, needed in SETTINGS.items():
            if name in settings and settings[name].value != needed:
                raise InvalidOption(
                    f"topic {self.topic} has {name}={settings[name].value}; {needed} is required, "
                    "or restored records would be deleted or get other timestamps"
                )

    def bounds(self) -> dict[int, OffsetBounds]:
        """The offsets of each partition; empty if the topic does not exist.

        Raises:
            SourceFailed: the log does not answer.
        """
        with (
            translate_client_errors("cannot look up offsets"),
            RawCluster(self._properties) as cluster,
        ):
            try:
                plan = cluster.topics([self.topic])[self.topic]
            except UnknownTopic:
                return {}
            topic_partitions = [TopicPartition(self.topic, each) for each in plan.partitions]
            lows = cluster.offsets(dict.fromkeys(topic_partitions, EARLIEST))
            highs = cluster.offsets(dict.fromkeys(topic_partitions, LATEST))
        return {
            each.partition: OffsetBounds(lows[each] or 0, highs[each] or 0)
            for each in topic_partitions
        }

    def publish(
        self, key: bytes, partition: int, records: Iterable[ArchivedRecord], source: str
    ) -> int:
        """Publish records to a partition in their order; their number, once all are acknowledged.

        Raises:
            SourceFailed: the log did not acknowledge all of them.
        """
        return self._publisher.publish_all(
            {
                "value": record.value,
                "key": key,
                "partition": partition,
                # Timestamps of records cannot be before 1970.
                "timestamp": max(0, record.timestamp_ms),
                "headers": archive_headers(record, source),
            }
            for record in records
        )

    def delete_records(self, offsets: Mapping[int, int]) -> None:
        """Delete the records below these offsets, by partition.

        Raises:
            SourceFailed: the log did not delete all of them.
        """
        if not offsets:
            return
        topic_partitions = [
            PartitionOffset(self.topic, partition, offset) for partition, offset in offsets.items()
        ]
        answers = self._admin.delete_records(topic_partitions, request_timeout=_TIMEOUT_S)
        for answer in answers.values():
            try:
                answer.result(_TIMEOUT_S)
            except KafkaException as refusal:
                reason = refusal.args[0].str()
                raise SourceFailed(
                    f"records of {self.topic} were not deleted: {reason}"
                ) from refusal
