"""A broker applies each view of its cluster on the loop's thread, in order."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from logbroker.config import BrokerConfig, LogConfig
from logbroker.errors import RequestRefused, UnknownGroup
from logbroker.groups.messages import NO_GENERATION, NO_MEMBER, Commit, MemberIdentity
from logbroker.groups.stored import CommittedOffset, TopicPartition
from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable
from logbroker.server.broker import Broker
from logbroker.server.connection import Connection
from tests.support.function_calls import calls_of
from tests.support.kafka.raw_connection import ACKS_ALL, ACKS_LEADER, RawConnection, batch_of
from tests.support.kafka.stepped_broker import apply_views, stepped_broker
from tests.support.processes.waiting import until

DAY_MS = 86_400_000
NOT_LEADER_OR_FOLLOWER = 6


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose turns are ours, with one topic; it flushes once a day."""
    defaults = LogConfig(flush_ms=DAY_MS)
    with stepped_broker(BrokerConfig(tmp_path / "log", port=0, topic_defaults=defaults)) as broker:
        yield broker


def connect(broker: Broker) -> RawConnection:
    connection = RawConnection(f"127.0.0.1:{broker.port}")
    broker._loop._turn()
    return connection


def lose_session(broker: Broker) -> None:
    """The registry hands over a view in which this broker is not registered."""
    broker._membership._queue_view(replace(broker._registry.view, brokers={}))


def find_again(broker: Broker) -> None:
    broker._membership._queue_view(broker._registry.view)


def test_every_view_of_a_turn_is_applied(broker: Broker) -> None:
    followed: list[ClusterView] = []
    broker._membership.add_listener(followed.append)
    lose_session(broker)
    find_again(broker)
    broker._registry.create_topic("more", [(0,)], {})
    apply_views(broker)
    assert [(list(view.brokers), list(view.topics)) for view in followed] == [
        ([], ["events"]),
        ([0], ["events"]),
        ([0], ["events", "more"]),
    ]
    assert broker._partitions.view is followed[-1]


def test_a_thousand_queued_views_are_applied(broker: Broker) -> None:
    followed: list[ClusterView] = []
    broker._membership.add_listener(followed.append)
    for _ in range(1_000):
        find_again(broker)
    apply_views(broker)
    assert len(followed) == 1_000


def test_views_are_applied_between_the_logs_that_are_opened_again(broker: Broker) -> None:
    folders = [broker._config.data_dir / f"more-{number}" for number in range(3)]
    for folder in folders:
        folder.write_text("in the way")
    broker._registry.create_topic("more", [(0,)] * 3, {})
    apply_views(broker)
    assert broker._partitions.open_failed == 3
    for folder in folders:
        folder.unlink()
    failed: list[int] = []
    broker._membership.add_listener(lambda _: failed.append(broker._partitions.open_failed))
    broker._reopen_failed()
    find_again(broker)
    apply_views(broker)
    assert failed == [2]
    assert broker._partitions.open_failed == 0


def test_batches_of_the_turn_of_a_resignation_are_written_and_then_rejected(
    broker: Broker,
) -> None:
    with connect(broker) as connection, connect(broker) as waiting:
        waiting.fetch("events", 0, max_wait_ms=DAY_MS)
        broker._loop._turn()
        connection.produce("events", batch_of(b"one"), acks=ACKS_ALL)
        until(lambda: connection_is_readable(broker), "the request is there")
        lose_session(broker)
        apply_views(broker)
        assert connection.produced()[1:] == (NOT_LEADER_OR_FOLLOWER, -1)
        assert waiting.fetched().error_code == NOT_LEADER_OR_FOLLOWER

        connection.produce("events", batch_of(b"two"), acks=ACKS_LEADER)
        broker._loop._turn()
        assert connection.produced()[1:] == (NOT_LEADER_OR_FOLLOWER, -1)

        find_again(broker)
        apply_views(broker)
        connection.produce("events", batch_of(b"three"), acks=ACKS_LEADER)
        broker._loop._turn()
        # After the first batch, which is in the log although it was not acknowledged.
        assert connection.produced()[1:] == (0, 1)


def test_a_view_costs_the_loop_what_changed_and_not_what_exists(broker: Broker) -> None:
    others = {f"t{n}": Topic(f"t{n}", UUID(int=n), ((9,),), {}) for n in range(2_000)}
    view = broker._registry.view
    many = replace(view, topics=view.topics.changed(others))
    broker._membership._queue_view(many)
    apply_views(broker)
    new = Topic("new", UUID(int=2_000), ((9,),), {})
    for changes in ({"new": new}, {"t7": replace(new, name="t7")}, {"t8": None}):
        many = replace(many, topics=many.topics.changed(changes))
        broker._membership._queue_view(many)
        assert calls_of(lambda: apply_views(broker)) < len(others)
    assert broker._partitions.view is many


def test_a_topic_with_unreadable_metadata_keeps_its_committed_offsets(
    broker: Broker,
) -> None:
    until(lambda: turned(broker) and commit(broker, 7) is None, "an offset is committed")
    view = broker._registry.view
    broker._membership._queue_view(
        replace(view, topics=TopicTable(), unreadable=frozenset({"events"}))
    )
    find_again(broker)
    apply_views(broker)
    assert commit(broker, 8, partition=1) is None
    assert broker._coordinator.get("readers").offsets == {
        ("events", 0): CommittedOffset(7),
        ("events", 1): CommittedOffset(8),
    }


def test_a_topic_recreated_while_unreadable_has_no_committed_offsets(
    broker: Broker,
) -> None:
    until(lambda: turned(broker) and commit(broker, 7) is None, "an offset is committed")
    view = broker._registry.view
    broker._membership._queue_view(
        replace(view, topics=TopicTable(), unreadable=frozenset({"events"}))
    )
    recreated = replace(view.topics["events"], topic_id=UUID(int=1))
    broker._membership._queue_view(replace(view, topics=TopicTable.of([recreated])))
    until(lambda: turned(broker) and offsets(broker) == {}, "the offset is forgotten")


def commit(broker: Broker, offset: int, partition: int = 0) -> RequestRefused | None:
    """Commit without a member id, run the loop until it is done, and return the error."""
    answers: list[RequestRefused | None] = []
    broker._coordinator.commit(
        "readers",
        Commit(MemberIdentity(NO_MEMBER), NO_GENERATION),
        {("events", partition): CommittedOffset(offset)},
        answers.append,
    )
    until(lambda: answers or (turned(broker) and answers), "the commit is answered")
    return answers[0]


def offsets(broker: Broker) -> Mapping[TopicPartition, CommittedOffset]:
    try:
        return broker._coordinator.get("readers").offsets
    except UnknownGroup:
        return {}


def connection_is_readable(broker: Broker) -> bool:
    """Whether the loop's next turn has something to read."""
    return bool(broker._loop._selector.select(0))


def test_a_defect_in_a_registry_call_closes_one_connection(broker: Broker) -> None:
    with connect(broker) as unlucky, connect(broker) as other:
        met, spared = connections_of(broker, unlucky, other)
        broker._registry_thread.submit(met, fail, lambda _: None)
        broker._registry_thread.submit(spared, lambda: 1, lambda _: None)
        until(lambda: turned(broker) and not met.is_open, "it is closed")
        unlucky.until_closed()
        assert spared.is_open


def test_a_defect_in_a_callback_closes_one_connection(broker: Broker) -> None:
    with connect(broker) as unlucky, connect(broker) as other:
        met, spared = connections_of(broker, unlucky, other)
        broker._registry_thread.submit(met, lambda: 1, fail)
        until(lambda: turned(broker) and not met.is_open, "it is closed")
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        other.send(request, 4)
        until(lambda: turned(broker) and other.is_readable(), "the other one is answered")
        _, answer = other.receive(MetadataResponse, 4)
        assert [node.node_id for node in answer.brokers] == [0]
        assert spared.is_open


def fail(*_: object) -> None:
    raise ZeroDivisionError


def turned(broker: Broker) -> bool:
    """Turn once, whatever is there."""
    broker._loop.call_soon(lambda: None)
    broker._loop._turn()
    return True


def connections_of(broker: Broker, *clients: RawConnection) -> list[Connection]:
    """The broker's ends of these connections."""
    by_peer = {connection.peer: connection for connection in broker._listener}
    return [by_peer["{}:{}".format(*client.socket.getsockname())] for client in clients]
