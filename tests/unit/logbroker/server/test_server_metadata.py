"""Metadata and DescribeCluster respond with the view applied last."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from logbroker.config import BrokerConfig
from logbroker.listeners import parse_listeners
from logbroker.registry.cluster import COORDINATION_SLOTS, BrokerEndpoint, ClusterView
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable
from logbroker.server.broker import Broker
from logbroker.server.metrics.collector import BrokerCollector
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.stepped_broker import apply_views

LEADER_NOT_AVAILABLE = 5
UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_TOPIC_ID = 100
HERE, THERE, GONE = 0, 7, 9

EVENTS = Topic("events", UUID(int=1), ((HERE,), (THERE,), (GONE,)), {})
OTHER = Topic("other", UUID(int=2), ((THERE,),), {})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours."""
    broker = Broker(BrokerConfig(tmp_path / "log", port=0))
    broker._loop._on_turn_end = broker._end_turn
    follow(broker, controller_id=THERE)
    yield broker
    broker._close()


def follow(broker: Broker, controller_id: int | None, *topics: Topic) -> ClusterView:
    """Let the broker follow a view of two live brokers, one dead one and some topics."""
    brokers = {
        HERE: BrokerEndpoint(HERE, "127.0.0.1", broker.port),
        THERE: BrokerEndpoint(THERE, "there.example", 9093),
    }
    named = {topic.name: topic for topic in topics or (EVENTS, OTHER)}
    view = replace(
        broker._registry.view,
        brokers=brokers,
        topics=TopicTable(named),
        controller_id=controller_id,
    )
    broker._membership._queue_view(view)
    apply_views(broker)
    return view


@pytest.fixture
def connection(broker: Broker) -> Iterator[RawConnection]:
    with RawConnection(f"127.0.0.1:{broker.port}") as connection:
        broker._loop._turn()
        yield connection


def ask(
    broker: Broker, connection: RawConnection, version: int, *names: str, **by_id: UUID
) -> MetadataResponse:
    """Metadata of these topics, of all when none is named."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    wanted += [
        MetadataRequest.MetadataRequestTopic(name=None, topic_id=one) for one in by_id.values()
    ]
    every: list[Any] | None = [] if version == 0 else None
    request = MetadataRequest(topics=wanted or every, allow_auto_topic_creation=True)
    connection.send(request, version)
    broker._loop._turn()
    answer: MetadataResponse = connection.receive(MetadataResponse, version)[1]
    return answer


def partitions_of(topic: Any) -> list[tuple[int, int, int, list[int], list[int]]]:
    return [
        (each.error_code, each.partition_index, each.leader_id, each.replica_nodes, each.isr_nodes)
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", range(13))
def test_every_partition_has_its_leader_or_an_error(
    broker: Broker, connection: RawConnection, version: int
) -> None:
    for names in ((), ("events", "other")):
        answer = ask(broker, connection, version, *names)
        assert [(each.node_id, each.host) for each in answer.brokers] == [
            (HERE, "127.0.0.1"),
            (THERE, "there.example"),
        ]
        events, other = answer.topics
        assert (events.error_code, events.name, other.name) == (0, "events", "other")
        assert partitions_of(events) == [
            (0, 0, HERE, [HERE], [HERE]),
            (0, 1, THERE, [THERE], [THERE]),
            (LEADER_NOT_AVAILABLE, 2, -1, [GONE], [GONE]),
        ]
        if version >= 1:
            assert answer.controller_id == THERE
        if version >= 5:
            assert [each.offline_replicas for each in events.partitions] == [[], [], [GONE]]
        if version >= 10:
            assert events.topic_id == EVENTS.topic_id


@pytest.mark.parametrize("of", ["topic", "cluster"])
@pytest.mark.parametrize("topics", [(), (EVENTS, OTHER)])
def test_all_topics_are_described_with_the_operations_of_the_client(
    broker: Broker, connection: RawConnection, of: str, topics: tuple[Topic, ...]
) -> None:
    view = follow(broker, THERE, *topics)
    broker._membership._queue_view(replace(view, topics=TopicTable.of(topics)))
    apply_views(broker)
    request = MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=of == "topic",
        include_cluster_authorized_operations=of == "cluster",
    )
    connection.send(request, 8)
    broker._loop._turn()
    answer = connection.receive(MetadataResponse, 8)[1]
    assert [each.name for each in answer.topics] == [each.name for each in topics]


def test_a_response_is_from_the_view_applied_last(
    broker: Broker, connection: RawConnection
) -> None:
    assert [each.name for each in ask(broker, connection, 9).topics] == ["events", "other"]
    follow(broker, None, OTHER)
    answer = ask(broker, connection, 9)
    assert [each.name for each in answer.topics] == ["other"]


def test_a_live_broker_is_named_while_no_controller_is_elected(
    broker: Broker, connection: RawConnection
) -> None:
    follow(broker, None, OTHER)
    assert ask(broker, connection, 9).controller_id == HERE


def test_metrics_show_the_brokers_registration(broker: Broker) -> None:
    def measured() -> dict[str, float]:
        metrics = BrokerCollector(broker._metric_sources()).collect()
        samples = [sample for metric in metrics for sample in metric.samples]
        wanted = ("registered", "brokers_alive", "partitions_led", "partitions_offline")
        values = {sample.name.removeprefix("logbroker_"): sample.value for sample in samples}
        return {name: values[name] for name in wanted}

    expected = {"registered": 1, "brokers_alive": 2, "partitions_led": 1}
    assert measured() == expected | {"partitions_offline": 1}
    view = broker._partitions.view
    broker._membership._queue_view(replace(view, brokers={THERE: view.brokers[THERE]}))
    apply_views(broker)
    expected = {"registered": 0, "brokers_alive": 1, "partitions_led": 0}
    assert measured() == expected | {"partitions_offline": 2}


def test_errors_of_the_whole_cluster_are_counted_in_each_answer(
    broker: Broker, connection: RawConnection
) -> None:
    for _ in range(2):
        ask(broker, connection, 9)
    ask(broker, connection, 9, "events", "absent")
    errors = {code: count for (_, code), count in broker._counters.errors.items()}
    assert errors == {LEADER_NOT_AVAILABLE: 3, UNKNOWN_TOPIC_OR_PARTITION: 1}


def test_each_listener_answers_with_its_own_addresses(tmp_path: Path) -> None:
    listeners = parse_listeners(
        "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0", "OUT:PLAINTEXT", "OUT://here.example:19092"
    )
    broker = Broker(BrokerConfig(tmp_path / "log", listeners=listeners))
    broker._loop._on_turn_end = broker._end_turn
    inside, out = broker._listener.addresses
    outside = out._replace(host="there.example")
    brokers = {
        HERE: BrokerEndpoint.of(HERE, [inside, out]),
        THERE: BrokerEndpoint.of(THERE, [outside]),
    }
    view = replace(broker._registry.view, brokers=brokers, topics=TopicTable.of([EVENTS]))
    view = replace(view, coordinators=dict.fromkeys(range(COORDINATION_SLOTS), HERE))
    broker._membership._queue_view(view)
    apply_views(broker)
    seen = []
    for bound in broker._listener._bound:
        with RawConnection(f"127.0.0.1:{bound.port}") as connection:
            broker._loop._turn()
            metadata = ask(broker, connection, 9)
            connection.send(DescribeClusterRequest(), 0)
            broker._loop._turn()
            cluster = connection.receive(DescribeClusterResponse, 0)[1]
            connection.send(FindCoordinatorRequest(key="g", key_type=0), 2)
            broker._loop._turn()
            coordinator = connection.receive(FindCoordinatorResponse, 2)[1]
            named = [(each.node_id, each.host, each.port) for each in metadata.brokers]
            assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == named
            assert (coordinator.node_id, coordinator.host, coordinator.port) == named[0]
            leaders = [each.leader_id for each in metadata.topics[0].partitions]
            seen.append((named, leaders))
    broker._close()
    assert seen == [
        # The other broker has no such listener.
        ([(HERE, "127.0.0.1", inside.port)], [HERE, -1, -1]),
        (
            [(HERE, "here.example", 19092), (THERE, "there.example", 19092)],
            [HERE, THERE, -1],
        ),
    ]


def test_unknown_topics_are_reported_by_name_and_by_id(
    broker: Broker, connection: RawConnection
) -> None:
    (absent,) = ask(broker, connection, 12, "absent").topics
    assert (absent.error_code, absent.name) == (UNKNOWN_TOPIC_OR_PARTITION, "absent")
    (absent,) = ask(broker, connection, 12, absent=UUID(int=99)).topics
    assert (absent.error_code, absent.topic_id) == (UNKNOWN_TOPIC_ID, UUID(int=99))
    (found,) = ask(broker, connection, 12, other=OTHER.topic_id).topics
    assert (found.error_code, found.name) == (0, "other")


def test_a_cluster_is_described_by_its_live_brokers(
    broker: Broker, connection: RawConnection
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    connection.send(request, 0)
    broker._loop._turn()
    answer = connection.receive(DescribeClusterResponse, 0)[1]
    assert [(each.broker_id, each.port) for each in answer.brokers] == [
        (HERE, broker.port),
        (THERE, 9093),
    ]
    assert answer.controller_id == THERE
    assert answer.cluster_id == broker._registry.view.cluster_id
