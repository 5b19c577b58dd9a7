"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from logbroker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    RequestRefused,
)
from logbroker.registry.topic import Topic
from logbroker.server.catalog import Catalog
from logbroker.server.handlers.configs import config_source, setting_values
from logbroker.server.partition import Partition, Partitions
from logbroker.wire.error_codes import code_and_message, code_of

BROKER_DEFAULT: Final = -1
"""A partition count or replication factor that leaves the choice to the broker (KIP-464)."""

HIGH_WATERMARK: Final = -1
"""An offset of DeleteRecords that means: everything that consumers can see."""

NO_ID: Final = UUID(int=0)

_Created = CreateTopicsResponse.CreatableTopicResult


class TopicHandlers:
    """Changes to topics; each is durable before it is answered."""

    def __init__(
        self,
        catalog: Catalog,
        partitions: Partitions,
        broker_id: int,
        num_partitions: int,
        on_deleted: Callable[[Partition], None],
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._broker_id = broker_id
        self._num_partitions = num_partitions
        self._on_deleted = on_deleted

    def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create each topic, or say why not."""
        doubled = _named_twice(topic.name for topic in request.topics)
        return CreateTopicsResponse(
            throttle_time_ms=0,
            topics=[
                self._create(topic, doubled, validate_only=bool(request.validate_only))
                for topic in request.topics
            ],
        )

    def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete each topic, named or (from v6) by id."""
        named = [self._delete(name, NO_ID) for name in request.topic_names or ()]
        by_either = [self._delete(topic.name, topic.topic_id) for topic in request.topics or ()]
        return DeleteTopicsResponse(throttle_time_ms=0, responses=named + by_either)

    def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Raise partition counts."""
        doubled = _named_twice(topic.name for topic in request.topics)
        results = []
        for topic in request.topics:
            refusal = self._grow(topic, doubled, request.validate_only)
            code, message = code_and_message(refusal)
            results.append(
                CreatePartitionsResponse.CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=code,
                    error_message=message,
                )
            )
        return CreatePartitionsResponse(throttle_time_ms=0, results=results)

    def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """Move log start offsets forward (KIP-107)."""
        result = DeleteRecordsResponse.DeleteRecordsTopicResult
        return DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=[
                result(
                    name=topic.name,
                    partitions=[
                        self._delete_before(topic.name, wanted.partition_index, wanted.offset)
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _create(
        self, topic: CreateTopicsRequest.CreatableTopic, doubled: set[str], *, validate_only: bool
    ) -> _Created:
        try:
            if topic.name in doubled:
                raise InvalidRequest(f"topic {topic.name} is named twice in one request")
            partitions = self._partition_count(topic)
            settings = {config.name: config.value or "" for config in topic.configs}
            created = self._catalog.create(
                topic.name, partitions, settings, validate_only=validate_only
            )
        except RequestRefused as refusal:
            code, message = code_and_message(refusal)
            return _Created(
                name=topic.name,
                topic_id=NO_ID,
                error_code=code,
                error_message=message,
                num_partitions=-1,
                replication_factor=-1,
                configs=[],
            )
        return self._created(topic.name, partitions, created)

    def _created(self, name: str, partitions: int, topic: Topic | None) -> _Created:
        values = setting_values(self._catalog.log_config(topic)) if topic else {}
        return _Created(
            name=name,
            topic_id=topic.topic_id if topic else NO_ID,
            error_code=0,
            error_message=None,
            topic_config_error_code=0,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                _Created.CreatableTopicConfigs(
                    name=setting,
                    value=value,
                    read_only=False,
                    config_source=config_source(setting, topic),
                    is_sensitive=False,
                )
                for setting, value in values.items()
            ],
        )

    def _partition_count(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        if topic.assignments:
            return self._assigned_count(topic)
        if topic.replication_factor not in (BROKER_DEFAULT, 1):
            raise InvalidReplicationFactor(
                f"replication factor is {topic.replication_factor}; there is 1 broker"
            )
        if topic.num_partitions == BROKER_DEFAULT:
            return self._num_partitions
        if topic.num_partitions < 1:
            raise InvalidPartitions(f"{topic.num_partitions} partitions; allowed is 1 and more")
        return int(topic.num_partitions)

    def _assigned_count(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
            raise InvalidRequest("a manual assignment goes without partition and replica counts")
        numbers = sorted(assignment.partition_index for assignment in topic.assignments)
        self._check_assignment(assignment.broker_ids for assignment in topic.assignments)
        if numbers != list(range(len(numbers))):
            raise InvalidReplicaAssignment(f"partitions {numbers} are not numbered 0 and up")
        return len(numbers)

    def _check_assignment(self, assignments: Iterable[list[int]]) -> None:
        for brokers in assignments:
            if list(brokers) != [self._broker_id]:
                raise InvalidReplicaAssignment(
                    f"assigned to brokers {list(brokers)}; there is broker {self._broker_id} alone"
                )

    def _delete(
        self, name: str | None, topic_id: UUID
    ) -> DeleteTopicsResponse.DeletableTopicResult:
        error = None
        try:
            if name is None:
                name = self._catalog.registry.topic_by_id(topic_id).name
            self._close_and_delete(name)
        except RequestRefused as refusal:
            error = refusal
        code, message = code_and_message(error)
        return DeleteTopicsResponse.DeletableTopicResult(
            name=name,
            topic_id=topic_id,
            error_code=code,
            error_message=message,
        )

    def _close_and_delete(self, name: str) -> None:
        served = self._partitions.of_topic(name)
        try:
            self._catalog.delete(name)
        finally:
            # A deletion that the disk cuts short has closed them all the same.
            for partition in served:
                if not partition.is_open:
                    self._on_deleted(partition)

    def _grow(
        self,
        topic: CreatePartitionsRequest.CreatePartitionsTopic,
        doubled: set[str],
        validate_only: bool,
    ) -> RequestRefused | None:
        try:
            self._check_growth(topic, doubled)
            self._catalog.grow(topic.name, topic.count, validate_only=validate_only)
        except RequestRefused as refusal:
            return refusal
        return None

    def _check_growth(
        self, topic: CreatePartitionsRequest.CreatePartitionsTopic, doubled: set[str]
    ) -> None:
        if topic.name in doubled:
            raise InvalidRequest(f"topic {topic.name} is named twice in one request")
        more = topic.count - self._catalog.registry.topic(topic.name).partitions
        if topic.assignments is None:
            return
        if len(topic.assignments) != more:
            raise InvalidReplicaAssignment(f"{len(topic.assignments)} assignments for {more} more")
        self._check_assignment(assignment.broker_ids for assignment in topic.assignments)

    def _delete_before(
        self, name: str, number: int, offset: int
    ) -> DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult:
        low_watermark, code = -1, 0
        try:
            log = self._partitions.get(name, number).log
            end = log.high_watermark if offset == HIGH_WATERMARK else offset
            low_watermark = log.delete_records_before(end)
        except RequestRefused as refusal:
            code = code_of(refusal)
        return DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult(
            partition_index=number, low_watermark=low_watermark, error_code=code
        )


def _named_twice(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}
