"""Metadata and DescribeCluster: which brokers, topics and partitions there are."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from logbroker.errors import RequestRefused, UnknownTopicOrPartition
from logbroker.registry.topic import Topic, check_topic_name
from logbroker.server.catalog import Catalog
from logbroker.wire.error_codes import code_of

NO_ID: Final = UUID(int=0)
BROKER_ENDPOINTS: Final = 1
MISMATCHED_ENDPOINT_TYPE: Final = 114

_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """How clients reach this broker."""

    broker_id: int
    host: str
    port: int


class ClusterHandlers:
    """Answers about the cluster as this broker sees it: itself and its topics."""

    def __init__(
        self, catalog: Catalog, address: BrokerAddress, *, auto_create: bool, num_partitions: int
    ) -> None:
        self._catalog = catalog
        self._address = address
        self._auto_create = auto_create
        self._num_partitions = num_partitions

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """The brokers and the topics asked for; all topics when none is named (from v1: null)."""
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=self._address.broker_id,
                    host=self._address.host,
                    port=self._address.port,
                    rack=None,
                )
            ],
            cluster_id=self._catalog.registry.cluster_id,
            controller_id=self._address.broker_id,
            topics=self._topics(request),
        )

    def describe_cluster(self, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """The brokers alone (KIP-700)."""
        is_known = request.endpoint_type in (None, BROKER_ENDPOINTS)
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=0 if is_known else MISMATCHED_ENDPOINT_TYPE,
            error_message=None if is_known else "this broker has no controller endpoints",
            endpoint_type=BROKER_ENDPOINTS,
            cluster_id=self._catalog.registry.cluster_id,
            controller_id=self._address.broker_id,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=self._address.broker_id,
                    host=self._address.host,
                    port=self._address.port,
                    rack=None,
                    is_fenced=False,
                )
            ],
        )

    def _topics(self, request: MetadataRequest) -> list[_Topic]:
        wanted = request.topics
        if wanted is None or (request.version == 0 and not wanted):
            return [self._describe(topic) for topic in self._catalog.registry.topics.values()]
        may_create = self._auto_create and request.allow_auto_topic_creation is not False
        return [self._find(topic.name, topic.topic_id, may_create) for topic in wanted]

    def _find(self, name: str | None, topic_id: UUID | None, may_create: bool) -> _Topic:
        try:
            if name is None:
                return self._describe(self._catalog.registry.topic_by_id(topic_id or NO_ID))
            return self._describe(self._find_or_create(name, may_create))
        except RequestRefused as refusal:
            return _Topic(
                error_code=code_of(refusal),
                name=name,
                topic_id=topic_id or NO_ID,
                is_internal=False,
                partitions=[],
            )

    def _find_or_create(self, name: str, may_create: bool) -> Topic:
        try:
            return self._catalog.registry.topic(name)
        except UnknownTopicOrPartition:
            if not may_create:
                check_topic_name(name)
                raise
        topic = self._catalog.create(name, self._num_partitions, {})
        assert topic is not None
        return topic

    def _describe(self, topic: Topic) -> _Topic:
        here = self._address.broker_id
        return _Topic(
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=False,
            partitions=[
                _Partition(
                    error_code=0,
                    partition_index=number,
                    leader_id=here,
                    leader_epoch=0,
                    replica_nodes=[here],
                    isr_nodes=[here],
                    offline_replicas=[],
                )
                for number in range(topic.partitions)
            ],
        )
