"""Groups of the paper's consumers as processes: they join, leave, die, freeze; ZooKeeper too."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from logbroker.consumer import Producer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.paper_group import (
    Flow,
    PaperConsumer,
    check_deliveries,
    make_topic,
    until_handed,
)
from tests.support.kafka.zookeeper import SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperServer
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import until

pytestmark = pytest.mark.long

TOPIC = "clicks"
PARTITIONS = 6
SESSION_S = 3.0
"""Short, as tests wait for sessions to end; a consumer that a busy machine starves of it joins
again, which every test here allows."""

Start = Callable[..., PaperConsumer]


@pytest.fixture
def start(broker: BrokerProcess, tmp_path: Path) -> Iterator[Start]:
    """Starts a consumer by name; each is killed when the test ends."""
    make_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
    with ExitStack() as stack:

        def start(name: str, zookeeper: str, **options: Any) -> PaperConsumer:
            consumer = PaperConsumer(
                name,
                tmp_path,
                TOPIC,
                zookeeper=zookeeper,
                group_id="readers",
                bootstrap_servers=broker.bootstrap_servers,
                session_timeout_s=SESSION_S,
                **{"auto_offset_reset": "smallest", "auto_commit_interval_s": 0.2, **options},
            )
            stack.enter_context(consumer)
            consumer.join()
            return consumer

        yield start


def partitions_of(consumer: PaperConsumer, after: int = 0) -> set[int]:
    """The partitions of what a consumer was handed after so many messages."""
    return {each.partition for each in consumer.handed[after:]}


def test_consumers_that_join_leave_and_are_killed_are_handed_each_message_in_turns(
    broker: BrokerProcess, zookeeper: SharedZooKeeper, start: Start
) -> None:
    chroot = zookeeper.fresh_chroot()
    with Flow(broker.bootstrap_servers, TOPIC) as flow:
        first = start("first", chroot)
        until(lambda: len(partitions_of(first)) == PARTITIONS, "the first reads everything")
        second = start("second", chroot, streams=2)
        third = start("third", chroot)
        group = [first, second, third]
        until(lambda: all(each.handed for each in group), "each has its share")
        first.leave()
        until_handed(set(flow.sent), group)
        second.kill()
        fourth = start("fourth", chroot)
        group.append(fourth)
        until(lambda: fourth.handed, "the fourth has its share")
        until_handed(set(flow.sent), group)
        third.kill()
        until_handed(set(flow.sent), group)
        taken_over = len(fourth.handed)
        until(lambda: len(partitions_of(fourth, taken_over)) == PARTITIONS, "it reads everything")
    until_handed(flow.sent, group)
    fourth.leave()
    check_deliveries(group)


def test_a_consumer_that_was_stopped_beyond_its_session_hands_out_nothing_that_it_held(
    broker: BrokerProcess, zookeeper: SharedZooKeeper, start: Start
) -> None:
    chroot = zookeeper.fresh_chroot()
    with Producer(broker.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send(TOPIC, [b"old"] * 50)
    # It has read far ahead when it stops, in the midst of a message's processing.
    frozen = start("frozen", chroot, stop_after=100)
    frozen.until_stopped()
    with Flow(broker.bootstrap_servers, TOPIC) as flow:
        other = start("other", chroot)
        until(lambda: len(partitions_of(other)) == PARTITIONS, "the other takes over")
        until_handed(set(flow.sent), [other])
        assert len(frozen.handed) == 100
        frozen.resume()
        until(lambda: len(frozen.handed) > 200, "it has a share again")
    until_handed(flow.sent, [frozen, other])
    check_deliveries([frozen, other])


def test_consumers_whose_connections_break_again_and_again_are_handed_each_message(
    broker: BrokerProcess, zookeeper: SharedZooKeeper, start: Start
) -> None:
    tree = zookeeper.fresh_chroot().partition("/")[2]
    with TcpLink(zookeeper.port) as link:
        with Flow(broker.bootstrap_servers, TOPIC) as flow:
            group = [start(name, f"{link.address}/{tree}") for name in ("one", "two")]
            until(lambda: all(each.handed for each in group), "each has its share")
            for number in range(5):
                link.cut()
                link.mend()
                # In the midst of the rebalance that the broken connections may be about.
                group.append(start(f"guest-{number}", f"{link.address}/{tree}"))
                link.cut()
                link.mend()
                until_handed(set(flow.sent), group)
                group[-1].kill()
        until_handed(flow.sent, group)
    check_deliveries(group)


def test_consumers_carry_on_when_zookeeper_was_restarted(
    broker: BrokerProcess, own_zookeeper: ZooKeeperServer, start: Start
) -> None:
    with Flow(broker.bootstrap_servers, TOPIC) as flow:
        group = [start(name, own_zookeeper.address) for name in ("one", "two")]
        until(lambda: all(each.handed for each in group), "each has its share")
        own_zookeeper.restart()
        until_handed(set(flow.sent), group)
        third = start("three", own_zookeeper.address)
        group.append(third)
        until(lambda: third.handed, "the third has its share")
    until_handed(flow.sent, group)
    check_deliveries(group)


def test_consumers_whose_sessions_all_ended_in_an_outage_begin_again(
    broker: BrokerProcess, own_zookeeper: ZooKeeperServer, start: Start
) -> None:
    with Flow(broker.bootstrap_servers, TOPIC) as flow:
        group = [start(name, own_zookeeper.address) for name in ("one", "two")]
        until(lambda: all(each.handed for each in group), "each has its share")
        own_zookeeper.pause()
        for each in group:
            each.until_says("connection lost zookeeper")
        own_zookeeper.resume()
        until_handed(set(flow.sent), group)
    until_handed(flow.sent, group)
    check_deliveries(group)


def test_consumers_carry_on_when_the_leader_of_an_ensemble_dies(
    broker: BrokerProcess, zookeeper_ensemble: ZooKeeperEnsemble, start: Start
) -> None:
    with Flow(broker.bootstrap_servers, TOPIC) as flow:
        group = [start(name, zookeeper_ensemble.address) for name in ("one", "two")]
        until(lambda: all(each.handed for each in group), "each has its share")
        zookeeper_ensemble.leader.kill()
        until_handed(set(flow.sent), group)
        third = start("three", zookeeper_ensemble.address)
        group.append(third)
        until(lambda: third.handed, "the third has its share")
    until_handed(flow.sent, group)
    check_deliveries(group)
