"""Metadata, DescribeCluster and FindCoordinator: requests about the cluster's view."""

import struct
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from logbroker.errors import (
    LeaderNotAvailable,
    RequestRefused,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
)
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.topic import Topic, check_topic_name
from logbroker.server.connection import Connection
from logbroker.server.handlers.lazy_response import QUICK_ITEMS_MAX, LazyResponse, lazy_if_large
from logbroker.server.mutations import PartitionMutations
from logbroker.server.partition import ANNOUNCED_LEADER_EPOCH, Partitions
from logbroker.server.topic_changes import NewTopic, Outcomes, TopicCreation
from logbroker.wire.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    ERROR_CODES,
    INVALID_REQUEST,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    code_of,
)
from logbroker.wire.schema import error_codes

NO_ID: Final = UUID(int=0)
NO_BROKER: Final = -1
NO_ERROR: Final = 0
LEADER_NOT_AVAILABLE: Final = ERROR_CODES[LeaderNotAvailable]
BROKER_ENDPOINTS: Final = 1
MISMATCHED_ENDPOINT_TYPE: Final = 114

NO_ENDPOINT: Final = BrokerEndpoint(NO_BROKER, "", -1)
FIRST_WITH_MANY_KEYS: Final = 4
FIRST_WITH_THROTTLE_TIME: Final = 3
_INT32: Final = struct.Struct(">i")
GROUP, TRANSACTION = 0, 1

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition
_Coordinator = FindCoordinatorResponse.Coordinator
_CoordinatorLookup = tuple[BrokerEndpoint, int, str | None]
"""Broker, error code and error message."""


class CachedMetadata:
    """The response with every topic of one view, encoded once per version.

    Encoding eight thousand partitions takes tens of milliseconds, so another thread does it first.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._encoded: dict[int, bytes] = {}
        self._errors: dict[int, Counter[int]] = {}

    @cached_property
    def _message(self) -> Any:
        view = self.view
        return _response(view, [_describe(topic, view) for topic in view.topics.values()])

    def is_expensive(self, version: int) -> bool:
        """Return whether `encode` of this version takes milliseconds."""
        if version in self._encoded and version in self._errors:
            return False
        return sum(topic.partitions for topic in self.view.topics.values()) > QUICK_ITEMS_MAX

    def encode(self, version: int) -> bytes:
        """Return the body of the response."""
        if version not in self._encoded:
            self._encoded[version] = bytes(self._message.encode(version=version))
        return self._encoded[version]

    def error_codes(self, version: int) -> Counter[int]:
        """Count the error codes of the response."""
        if version not in self._errors:
            self._errors[version] = error_codes(self._message, version)
        return self._errors[version]


class ThrottledMetadata(NamedTuple):
    """A cached response with a throttle time, its first field from version 3 on."""

    cached: CachedMetadata
    throttle_ms: int

    def encode(self, version: int) -> bytearray:
        """Return the body of the response."""
        body = bytearray(self.cached.encode(version))
        if version >= FIRST_WITH_THROTTLE_TIME:
            _INT32.pack_into(body, 0, self.throttle_ms)
        return body


_MetadataResult = MetadataResponse | CachedMetadata | LazyResponse


class ClusterHandlers:
    """Handles requests with the view that this broker applied last."""

    def __init__(
        self,
        partitions: Partitions,
        creation: TopicCreation,
        *,
        auto_create: bool,
        num_partitions: int,
    ) -> None:
        self._partitions = partitions
        self._creation = creation
        self._auto_create = auto_create
        self._num_partitions = num_partitions
        self._all_topics: dict[str, CachedMetadata] = {}
        """The cached responses of the newest view, by listener."""

    def metadata(
        self,
        request: MetadataRequest,
        connection: Connection,
        respond: Callable[[_MetadataResult], None],
    ) -> None:
        """Return the brokers and the requested topics; all topics if `topics` is None.

        The response is immediate unless topics are auto-created.
        """
        missing = self._missing_topics(request)
        if not missing:
            respond(self._metadata(request, connection, {}))
            return
        mutations = PartitionMutations(connection, is_strict=True)
        # Large requests come on another thread; a count that is lost there does no harm.
        counted = {name: mutations.count_partitions(self._num_partitions) for name in missing}
        refused: Outcomes = {name: error for name, error in counted.items() if error is not None}
        wanted = [
            NewTopic(each, self._num_partitions, {}) for each in missing if each not in refused
        ]

        def created(outcomes: Outcomes) -> None:
            outcomes = {**outcomes, **refused}
            respond(self._metadata(request, connection, outcomes, mutations.throttle_ms()))

        self._creation.create(connection, wanted, created)

    def describe_cluster(
        self,
        request: DescribeClusterRequest,
        connection: Connection,
        respond: Callable[[DescribeClusterResponse], None],
    ) -> None:
        """Return the brokers with their addresses for this client (KIP-700)."""
        view = self._view_for(connection)
        is_known = request.endpoint_type in (None, BROKER_ENDPOINTS)
        response = DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0 if is_known else MISMATCHED_ENDPOINT_TYPE,
            error_message=None if is_known else "this broker has no controller endpoints",
            endpoint_type=BROKER_ENDPOINTS,
            cluster_id=view.cluster_id,
            controller_id=_controller(view),
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=broker.host,
                    port=broker.port,
                    rack=None,
                    is_fenced=False,
                )
                for broker in view.brokers.values()
            ],
        )
        respond(response)

    def find_coordinator(
        self,
        request: FindCoordinatorRequest,
        connection: Connection,
        respond: Callable[[FindCoordinatorResponse], None],
    ) -> None:
        """Return the coordinator of a group, or (from v4) of many groups.

        Transactions have no coordinator; clients that do not use them continue without it.
        """
        view, kind = self._view_for(connection), request.key_type or GROUP
        has_many = (request.version or 0) >= FIRST_WITH_MANY_KEYS
        broker, code, reason = (
            (NO_ENDPOINT, 0, None) if has_many else _find_coordinator(view, kind, request.key or "")
        )
        response = FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=reason,
            node_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            coordinators=[
                _coordinator(key, _find_coordinator(view, kind, key))
                for key in (request.coordinator_keys if has_many else ())
            ],
        )
        respond(response)

    def _view_for(self, connection: Connection) -> ClusterView:
        """Return the view with the addresses of the listener that the client came by."""
        return self._partitions.view.at_listener(connection.listener)

    def _missing_topics(self, request: MetadataRequest) -> list[str]:
        """Return the requested names to auto-create, without duplicates."""
        if not self._auto_create or request.allow_auto_topic_creation is False:
            return []
        known = self._partitions.view.topics
        names = dict.fromkeys(topic.name for topic in request.topics or ())
        return [name for name in names if name is not None and name not in known]

    def _metadata(
        self,
        request: MetadataRequest,
        connection: Connection,
        outcomes: Outcomes,
        throttle_ms: int = 0,
    ) -> _MetadataResult:
        view = self._view_for(connection)
        wanted = request.topics
        if wanted is None:
            if request.include_topic_authorized_operations or (
                request.include_cluster_authorized_operations
            ):
                # The guard adds the operations of one client, so the response cannot be shared.
                topics = view.topics.values()
                return lazy_if_large(
                    sum(topic.partitions for topic in topics),
                    lambda: _response(view, [_describe(topic, view) for topic in topics]),
                )
            cached = self._all_topics.get(connection.listener)
            if cached is None or cached.view is not view:
                cached = self._all_topics[connection.listener] = CachedMetadata(view)
            return cached
        # Without duplicates: a response may be thousands of times as long as the name.
        requested = dict.fromkeys((each.name, each.topic_id or NO_ID) for each in wanted)

        def build() -> MetadataResponse:
            topics = [_find_topic(*each, view, outcomes) for each in requested]
            return _response(view, topics, throttle_ms)

        return lazy_if_large(sum(_partition_count(*each, view) for each in requested), build)


def _response(view: ClusterView, topics: list[_Topic], throttle_ms: int = 0) -> MetadataResponse:
    return MetadataResponse(
        throttle_time_ms=throttle_ms,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.broker_id, host=broker.host, port=broker.port, rack=None
            )
            for broker in view.brokers.values()
        ],
        cluster_id=view.cluster_id,
        controller_id=_controller(view),
        topics=topics,
    )


def _controller(view: ClusterView) -> int:
    """Return the controller, or any live broker while none is elected.

    Every broker handles the requests of a controller. Without a controller, librdkafka would
    retry only after minutes, and requests such as CreateTopics would wait that long.
    """
    if view.controller_id is not None:
        return view.controller_id
    return min(view.brokers, default=NO_BROKER)


def _partition_count(name: str | None, topic_id: UUID, view: ClusterView) -> int:
    """Return the partitions of a requested topic, at least 1."""
    topic = view.topics.get(name or view.name_of(topic_id) or "")
    return 1 if topic is None else topic.partitions


def _find_topic(name: str | None, topic_id: UUID, view: ClusterView, outcomes: Outcomes) -> _Topic:
    try:
        if name is None:
            return _describe(view.topic_by_id(topic_id), view)
        outcome = outcomes.get(name)
        if isinstance(outcome, RequestRefused) and name not in view.topics:
            raise _retriable(outcome)
        check_topic_name(name)
        return _describe(view.topic(name), view)
    except RequestRefused as refusal:
        return _Topic(
            error_code=code_of(refusal),
            name=name,
            topic_id=topic_id,
            is_internal=False,
            partitions=[],
        )


def _retriable(refusal: RequestRefused) -> RequestRefused:
    """Return a retriable error if the topic is there now, or may be created later."""
    if isinstance(refusal, TopicAlreadyExists | ThrottlingQuotaExceeded):
        return LeaderNotAvailable(str(refusal))
    return refusal


def _describe(topic: Topic, view: ClusterView) -> _Topic:
    return _Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[_partition(topic, number, view) for number in range(topic.partitions)],
    )


def _partition(topic: Topic, number: int, view: ClusterView) -> _Partition:
    replicas = list(topic.replicas[number])
    leader = view.leader(topic, number)
    return _Partition(
        error_code=NO_ERROR if leader is not None else LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=NO_BROKER if leader is None else leader,
        leader_epoch=ANNOUNCED_LEADER_EPOCH,
        replica_nodes=replicas,
        # The only replica is in sync with itself, even while its broker is down.
        isr_nodes=replicas,
        offline_replicas=[each for each in replicas if each not in view.brokers],
    )


def _find_coordinator(view: ClusterView, kind: int, key: str) -> _CoordinatorLookup:
    if kind == TRANSACTION:
        # Java's clients and librdkafka retry most other errors until a timeout.
        code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return NO_ENDPOINT, code, "this broker does not support transactions"
    if kind != GROUP:
        return NO_ENDPOINT, INVALID_REQUEST, f"unknown coordinator type {kind}"
    broker = view.coordinator(key)
    if broker is None:
        return NO_ENDPOINT, COORDINATOR_NOT_AVAILABLE, "the group has no coordinator now"
    return broker, 0, None


def _coordinator(key: str, found: _CoordinatorLookup) -> _Coordinator:
    broker, code, reason = found
    return _Coordinator(
        key=key,
        node_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        error_code=code,
        error_message=reason,
    )
