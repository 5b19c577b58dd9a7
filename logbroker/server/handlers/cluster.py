"""Metadata and DescribeCluster: which brokers, topics and partitions there are."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from logbroker.errors import LeaderNotAvailable, RequestRefused, TopicAlreadyExists
from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic, check_topic_name
from logbroker.server.connection import Connection
from logbroker.server.partition import Partitions
from logbroker.server.topic_changes import Outcomes, TopicCreation, WantedTopic
from logbroker.wire.answer_errors import error_codes
from logbroker.wire.error_codes import ERROR_CODES, code_of

NO_ID: Final = UUID(int=0)
NO_BROKER: Final = -1
NO_ERROR: Final = 0
LEADER_NOT_AVAILABLE: Final = ERROR_CODES[LeaderNotAvailable]
BROKER_ENDPOINTS: Final = 1
MISMATCHED_ENDPOINT_TYPE: Final = 114

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition


class WholeCluster:
    """The answer that names every topic of one view, encoded once for each version.

    Eight thousand partitions take tens of milliseconds, for which nobody else is served.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        topics = [_describe(topic, view) for topic in view.topics.values()]
        self._message: Any = _response(view, topics)
        self._encoded: dict[int, bytes] = {}
        self._errors: dict[int, Counter[int]] = {}

    def encode(self, version: int) -> bytes:
        """The body of the answer."""
        if version not in self._encoded:
            self._encoded[version] = bytes(self._message.encode(version=version))
        return self._encoded[version]

    def error_codes(self, version: int) -> Counter[int]:
        """How often each error code is in it."""
        if version not in self._errors:
            self._errors[version] = error_codes(self._message, version)
        return self._errors[version]


class ClusterHandlers:
    """Answers about the cluster as this broker has followed it."""

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
        self._whole: WholeCluster | None = None

    def metadata(
        self,
        request: MetadataRequest,
        connection: Connection,
        answer: Callable[[MetadataResponse | WholeCluster], None],
    ) -> None:
        """The brokers and the topics asked for; all topics when none is named (from v1: null).

        Answered at once, unless topics are to be created first.
        """
        missing = self._to_create(request)
        if not missing:
            answer(self._metadata(request, {}))
            return
        wanted = [WantedTopic(name, self._num_partitions, {}) for name in missing]
        self._creation.create(
            connection, wanted, lambda outcomes: answer(self._metadata(request, outcomes))
        )

    def describe_cluster(self, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """The brokers alone (KIP-700)."""
        view = self._partitions.view
        is_known = request.endpoint_type in (None, BROKER_ENDPOINTS)
        return DescribeClusterResponse(
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

    def _to_create(self, request: MetadataRequest) -> list[str]:
        """Names that are asked for and not there, each once."""
        if not self._auto_create or request.allow_auto_topic_creation is False:
            return []
        known = self._partitions.view.topics
        names = dict.fromkeys(topic.name for topic in request.topics or ())
        return [name for name in names if name is not None and name not in known]

    def _metadata(
        self, request: MetadataRequest, outcomes: Outcomes
    ) -> MetadataResponse | WholeCluster:
        view = self._partitions.view
        wanted = request.topics
        if wanted is None or (request.version == 0 and not wanted):
            if self._whole is None or self._whole.view is not view:
                self._whole = WholeCluster(view)
            return self._whole
        # Each once: the answer may be thousands of times as long as the name.
        asked = dict.fromkeys((one.name, one.topic_id or NO_ID) for one in wanted)
        return _response(view, [_find(*one, view, outcomes) for one in asked])


def _response(view: ClusterView, topics: list[_Topic]) -> MetadataResponse:
    return MetadataResponse(
        throttle_time_ms=0,
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
    """The controller, or while none is elected any live broker: each does what one is asked for.

    librdkafka asks again only after minutes if it is told that there is none, and whoever wants a
    topic created waits until then.
    """
    if view.controller_id is not None:
        return view.controller_id
    return min(view.brokers, default=NO_BROKER)


def _find(name: str | None, topic_id: UUID, view: ClusterView, outcomes: Outcomes) -> _Topic:
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
    """What a client is told whose topic another broker was faster to create: ask again."""
    return LeaderNotAvailable(str(refusal)) if isinstance(refusal, TopicAlreadyExists) else refusal


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
        leader_epoch=0,
        replica_nodes=replicas,
        # The one replica is in sync with itself, be its broker there or not.
        isr_nodes=replicas,
        offline_replicas=[each for each in replicas if each not in view.brokers],
    )
