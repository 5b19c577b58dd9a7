"""CreateTopics, DeleteTopics and CreatePartitions: change the registry, then respond."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from logbroker.config import BrokerConfig
from logbroker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    RequestRefused,
)
from logbroker.registry.registry import PlacedTopic, Replicas
from logbroker.registry.topic import Topic
from logbroker.server.connection import Connection
from logbroker.server.handlers.configs import config_source, topic_synonyms
from logbroker.server.handlers.lazy_response import LazyResponse
from logbroker.server.leadership import log_config
from logbroker.server.mutations import PartitionMutations
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.server.topic_changes import NewTopic, TopicChanges, TopicCreation
from logbroker.topic_settings import TOPIC_SETTINGS, setting_values
from logbroker.wire.error_codes import code_and_message

BROKER_DEFAULT: Final = -1
"""The partition count or replication factor that requests the broker's default (KIP-464)."""

FIRST_STRICT_CREATE: Final = 6
FIRST_STRICT_DELETE: Final = 5
FIRST_STRICT_GROWTH: Final = 3
"""The first versions whose clients know that a quota can be exceeded (KIP-599)."""

NO_ID: Final = UUID(int=0)

Key = TypeVar("Key", bound=Hashable)

_Created = CreateTopicsResponse.CreatableTopicResult
_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult


class TopicHandlers:
    """Changes topics; a response waits until the change is durable and applied by this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        changes: TopicChanges,
        creation: TopicCreation,
        registry_thread: RegistryThread,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._changes = changes
        self._creation = creation
        self._registry_thread = registry_thread

    def create_topics(
        self,
        request: CreateTopicsRequest,
        connection: Connection,
        respond: Callable[[LazyResponse], None],
    ) -> None:
        """Create each topic, or return an error for it."""
        duplicates = _duplicates(topic.name for topic in request.topics)
        parsed = {topic.name: self._parse(topic, duplicates) for topic in request.topics}
        is_strict = (request.version or 0) >= FIRST_STRICT_CREATE
        mutations = PartitionMutations(connection, is_strict=is_strict)
        if not request.validate_only:
            parsed = {name: self._charge_creation(each, mutations) for name, each in parsed.items()}
        wanted = [each for each in parsed.values() if isinstance(each, NewTopic)]
        refused = {
            name: error for name, error in parsed.items() if isinstance(error, RequestRefused)
        }

        def created(outcomes: dict[str, Topic | RequestRefused]) -> None:
            known = {**outcomes, **refused}
            throttle_ms = mutations.throttle_ms()

            def build() -> CreateTopicsResponse:
                results = [self._created(topic.name, known[topic.name]) for topic in request.topics]
                return CreateTopicsResponse(throttle_time_ms=throttle_ms, topics=results)

            respond(LazyResponse(build))

        if request.validate_only:
            self._registry_thread.submit(connection, lambda: self._check_new(wanted), created)
        else:
            self._creation.create(connection, wanted, created)

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        connection: Connection,
        respond: Callable[[DeleteTopicsResponse], None],
    ) -> None:
        """Delete each topic, identified by name or (from v6) by id."""
        requested: list[tuple[str | None, UUID]] = []
        requested += [(name, NO_ID) for name in request.topic_names or ()]
        requested += [(topic.name, topic.topic_id or NO_ID) for topic in request.topics or ()]
        is_strict = (request.version or 0) >= FIRST_STRICT_DELETE
        mutations = PartitionMutations(connection, is_strict=is_strict)
        refusals = [self._charge_deletion(*each, mutations) for each in requested]
        self._registry_thread.submit(
            connection,
            lambda: self._delete_all(requested, refusals),
            lambda responses: respond(
                DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms(), responses=responses)
            ),
        )

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        connection: Connection,
        respond: Callable[[CreatePartitionsResponse], None],
    ) -> None:
        """Raise partition counts."""
        duplicates = _duplicates(topic.name for topic in request.topics)

        is_strict = (request.version or 0) >= FIRST_STRICT_GROWTH
        mutations = PartitionMutations(connection, is_strict=is_strict)
        refused = (
            []
            if request.validate_only
            else [self._charge_growth(each, mutations) for each in request.topics]
        )

        def grow_all() -> list[RequestRefused | None]:
            early = refused or [None] * len(request.topics)
            return [
                refusal or self._grow(each, duplicates, request.validate_only)
                for each, refusal in zip(request.topics, early, strict=True)
            ]

        def grown(refusals: list[RequestRefused | None]) -> None:
            pairs = zip(request.topics, refusals, strict=True)
            results = [self._grown(topic.name, refusal) for topic, refusal in pairs]
            throttle_ms = mutations.throttle_ms()
            respond(CreatePartitionsResponse(throttle_time_ms=throttle_ms, results=results))

        self._registry_thread.submit(connection, grow_all, grown)

    def _parse(
        self, topic: CreateTopicsRequest.CreatableTopic, duplicates: set[str]
    ) -> NewTopic | RequestRefused:
        try:
            _check_unique(topic.name, duplicates)
            settings = {config.name: config.value or "" for config in topic.configs}
            if topic.assignments:
                assignment = _assignment(topic)
                return NewTopic(topic.name, len(assignment), settings, assignment)
            return NewTopic(topic.name, self._partition_count(topic), settings)
        except RequestRefused as refusal:
            return refusal

    def _charge_creation(
        self, parsed: NewTopic | RequestRefused, mutations: PartitionMutations
    ) -> NewTopic | RequestRefused:
        """Charge the quota of the client; return the new topic, or the error if it is used up."""
        if isinstance(parsed, NewTopic) and parsed.name not in self._partitions.view.topics:
            return mutations.count_partitions(parsed.partitions) or parsed
        return parsed

    def _charge_deletion(
        self, name: str | None, topic_id: UUID, mutations: PartitionMutations
    ) -> RequestRefused | None:
        """Charge the quota of the client; return the error if it is used up."""
        view = self._partitions.view
        topic = view.topics.get(name or view.name_of(topic_id) or "")
        return None if topic is None else mutations.count_partitions(topic.partitions)

    def _charge_growth(
        self, wanted: CreatePartitionsRequest.CreatePartitionsTopic, mutations: PartitionMutations
    ) -> RequestRefused | None:
        """Charge the quota of the client; return the error if it is used up."""
        topic = self._partitions.view.topics.get(wanted.name)
        if topic is None or wanted.count <= topic.partitions:
            return None
        return mutations.count_partitions(wanted.count - topic.partitions)

    def _partition_count(self, topic: CreateTopicsRequest.CreatableTopic) -> int:
        if topic.replication_factor not in (BROKER_DEFAULT, 1):
            raise InvalidReplicationFactor(
                f"replication factor is {topic.replication_factor}; allowed: 1, since "
                "logbroker does not replicate partitions"
            )
        if topic.num_partitions == BROKER_DEFAULT:
            return self._config.num_partitions
        if topic.num_partitions < 1:
            raise InvalidPartitions(f"{topic.num_partitions} partitions; allowed: 1 or more")
        return int(topic.num_partitions)

    def _check_new(self, wanted: Sequence[NewTopic]) -> dict[str, Topic | RequestRefused]:
        checked = self._changes.check_all(wanted)
        return {
            name: each if isinstance(each, RequestRefused) else _without_id(each)
            for name, each in checked.items()
        }

    def _created(self, name: str, outcome: Topic | RequestRefused) -> _Created:
        if isinstance(outcome, RequestRefused):
            code, message = code_and_message(outcome)
            return _Created(
                name=name,
                topic_id=NO_ID,
                error_code=code,
                error_message=message,
                num_partitions=-1,
                replication_factor=-1,
                configs=[],
            )
        values = setting_values(log_config(self._config, outcome))
        return _Created(
            name=name,
            topic_id=outcome.topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=0,
            num_partitions=outcome.partitions,
            replication_factor=1,
            configs=[
                _Created.CreatableTopicConfigs(
                    name=setting.name,
                    value=values[setting.name],
                    read_only=False,
                    config_source=config_source(topic_synonyms(setting, outcome, self._config)),
                    is_sensitive=False,
                )
                for setting in TOPIC_SETTINGS.values()
            ],
        )

    def _delete_all(
        self,
        requested: Sequence[tuple[str | None, UUID]],
        refusals: Sequence[RequestRefused | None],
    ) -> list[_Deleted]:
        duplicates = _duplicates(name or topic_id for name, topic_id in requested)
        return [
            self._delete(*each, duplicates, refusal)
            for each, refusal in zip(requested, refusals, strict=True)
        ]

    def _delete(
        self,
        name: str | None,
        topic_id: UUID,
        duplicates: set[str | UUID],
        refusal: RequestRefused | None,
    ) -> _Deleted:
        error = None
        try:
            if refusal is not None:
                raise refusal
            _check_unique(name or topic_id, duplicates)
            _check_named_once(name, topic_id)
            view = self._changes.view
            topic = view.topic_by_id(topic_id) if name is None else view.topic(name)
            name, topic_id = topic.name, topic.topic_id
            self._changes.delete(topic)
        except RequestRefused as refusal:
            error = refusal
        code, message = code_and_message(error)
        return _Deleted(name=name, topic_id=topic_id, error_code=code, error_message=message)

    def _grow(
        self,
        topic: CreatePartitionsRequest.CreatePartitionsTopic,
        duplicates: set[str],
        validate_only: bool,
    ) -> RequestRefused | None:
        change = self._changes.check_growth if validate_only else self._changes.add_partitions
        try:
            _check_unique(topic.name, duplicates)
            assignment = None
            if topic.assignments is not None:
                assignment = [tuple(each.broker_ids) for each in topic.assignments]
            change(topic.name, topic.count, assignment)
        except RequestRefused as refusal:
            return refusal
        return None

    def _grown(self, name: str, refusal: RequestRefused | None) -> _Grown:
        topic = self._partitions.view.topics.get(name)
        if refusal is None and topic is not None:
            refusal = self._partitions.failure_of(topic)
        code, message = code_and_message(refusal)
        return _Grown(name=name, error_code=code, error_message=message)


def _without_id(placed: PlacedTopic) -> Topic:
    replicas = tuple(tuple(brokers) for brokers in placed.replicas)
    return Topic(placed.name, NO_ID, replicas, placed.settings)


def _assignment(topic: CreateTopicsRequest.CreatableTopic) -> Replicas:
    if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
        raise InvalidRequest(
            "a manual assignment must not have a partition count or replication factor"
        )
    by_number = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
    numbers = sorted(each.partition_index for each in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise InvalidReplicaAssignment(f"partitions {numbers} are not consecutive from 0")
    return [by_number[number] for number in numbers]


def _duplicates(keys: Iterable[Key]) -> set[Key]:
    return {key for key, count in Counter(keys).items() if count > 1}


def _check_named_once(name: str | None, topic_id: UUID) -> None:
    if name is not None and topic_id != NO_ID:
        raise InvalidRequest(f"topic {name} is named with an id, too; allowed: one of the two")
    if name is None and topic_id == NO_ID:
        raise InvalidRequest("a topic has neither a name nor an id")


def _check_unique(key: object, duplicates: set[str] | set[str | UUID]) -> None:
    if key in duplicates:
        raise InvalidRequest(f"topic {key} is in the request twice")
