"""Inspection of topics and groups on logbroker and on Apache Kafka."""

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.config import Settings
from app.log.browser import BrowseQuery, LogBrowser
from app.log.errors import InspectionsBusy, LogUnavailable, NotInLog
from app.log.history import LogHistory
from app.log.inspection import Gap, GroupPartition, LogInspector, Retention
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import MirrorProcess
from tests.support.kafka.written_log import Sent, WrittenLog
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

TIME_MS = 1_763_712_000_000
FOREVER_MS = 10**12

LONG_SESSION_S = 60.0
"""Longer than any pause, so that no paused broker is removed."""

HANGING_S = 6.0
"""How long a page may take with a broker that hangs."""

SESSION_MS = 6_000
"""The shortest that the broker takes by default."""

_names = itertools.count(1)


@pytest.fixture(
    params=[
        "broker",
        pytest.param(
            "apache_kafka",
            marks=[
                pytest.mark.long,
                pytest.mark.xdist_group("apache_kafka"),
                pytest.mark.timeout(TEST_TIMEOUT_S),
            ],
        ),
    ]
)
def server(request: pytest.FixtureRequest) -> BrokerProcess | KafkaServer:
    found: BrokerProcess | KafkaServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def log(server: BrokerProcess | KafkaServer) -> WrittenLog:
    return WrittenLog(server.bootstrap_servers)


@pytest.fixture
def inspector(log: WrittenLog) -> LogInspector:
    return inspector_of(log.bootstrap_servers)


def inspector_of(servers: str) -> LogInspector:
    return LogInspector(Settings(bootstrap_servers=servers), time_s_max=DEADLINE_S)


@pytest.fixture
def topic(log: WrittenLog) -> str:
    """Three partitions: two records, one record, none."""
    name = f"seen-{next(_names)}"
    log.make_topic(name, 3, retention_ms=str(FOREVER_MS))
    log.publish(
        name,
        [
            # The later one is not the last one.
            Sent(b"one", partition=0, timestamp=TIME_MS + 500),
            Sent(b"two", partition=0, timestamp=TIME_MS),
            Sent(b"three", partition=1, timestamp=TIME_MS + 7),
        ],
    )
    return name


@contextmanager
def member_of(group: str, servers: str, topic: str, client_id: str = "reads") -> Iterator[Consumer]:
    """A consumer that has its share of the topic."""
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": client_id}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is not None, f"{group} reads")
        yield consumer


def test_a_topic_is_reported_with_its_partitions(inspector: LogInspector, topic: str) -> None:
    detail = inspector.topic(topic)
    assert detail.gaps == ()
    assert detail.topic.retention == Retention(FOREVER_MS, -1, "delete")
    assert (detail.topic.partitions, detail.topic.messages) == (3, 3)
    reported = [
        (each.start_offset, each.end_offset, each.first_ms, each.last_ms)
        for each in detail.partitions
    ]
    assert reported == [
        (0, 2, TIME_MS + 500, TIME_MS + 500),
        (0, 1, TIME_MS + 7, TIME_MS + 7),
        (0, 0, None, None),
    ]
    (broker,) = inspector.cluster().brokers
    assert broker.is_controller
    for each in detail.partitions:
        assert (each.leader, each.replicas, each.isr) == (broker.id, (broker.id,), (broker.id,))
    two, one, none = (each.bytes or 0 for each in detail.partitions)
    assert two > one > none == 0
    assert detail.topic.bytes == two + one


def test_deleted_records_are_not_reported(
    inspector: LogInspector, log: WrittenLog, topic: str
) -> None:
    log.delete_before(topic, 0, 1)
    partition = inspector.topic(topic).partitions[0]
    assert (partition.start_offset, partition.end_offset) == (1, 2)
    assert partition.first_ms == TIME_MS


def test_topics_are_listed_by_name_a_page_at_a_time(
    inspector: LogInspector, log: WrittenLog, topic: str
) -> None:
    log.make_topic(f"{topic}-b")
    log.make_topic(f"{topic}-a")
    first = inspector.topics(containing=topic, limit=2)
    assert [each.name for each in first.topics] == [topic, f"{topic}-a"]
    assert first.gaps == ()
    assert first.total == 3
    assert first.next_after is not None
    second = inspector.topics(containing=topic, limit=2, after=first.next_after)
    assert [each.name for each in second.topics] == [f"{topic}-b"]
    assert second.next_after is None
    row = first.topics[0]
    assert row == inspector.topic(topic).topic
    assert (row.offline, row.under_replicated) == (0, 0)


def test_a_group_is_reported_with_members_assignments_and_lag(
    inspector: LogInspector, log: WrittenLog, topic: str
) -> None:
    group = f"readers-of-{topic}"
    with member_of(group, log.bootstrap_servers, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        detail = inspector.group(group)
        assert detail.gaps == ()
        (member,) = detail.members
        assert (member.client_id, member.host) == ("reads", "127.0.0.1")
        assert member.partitions == [(topic, number) for number in range(3)]
        assert detail.partitions == (
            GroupPartition(topic, 0, 1, 2, 1, member.member_id),
            GroupPartition(topic, 1, None, 1, None, member.member_id),
            GroupPartition(topic, 2, None, 0, None, member.member_id),
        )
        row = detail.group
        assert (row.state, row.protocol, row.members, row.lag) == ("Stable", "range", 1, 1)
        assert not row.is_mirror
        page = inspector.groups(containing=group)
        assert page.groups == (row,)
        assert page.gaps == ()
    left = inspector.group(group)
    assert (left.group.state, left.members) == ("Empty", ())
    assert left.partitions == (GroupPartition(topic, 0, 1, 2, 1, None),)


def test_a_missing_topic_or_group_raises_its_own_error(inspector: LogInspector) -> None:
    with pytest.raises(NotInLog, match="topic 'nowhere' does not exist"):
        inspector.topic("nowhere")
    with pytest.raises(NotInLog):
        inspector.topic("no name for a topic!")
    # Nor does asking make it.
    assert inspector.topics(containing="nowhere").topics == ()
    for group in ("missing", "", "miss\0ing"):
        with pytest.raises(NotInLog, match="does not exist"):
            inspector.group(group)


def test_a_mirror_is_known_by_its_group_or_by_itself(broker: BrokerProcess, tmp_path: Path) -> None:
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic("clicks")
    log.publish("clicks", [Sent(b"one")])
    with BrokerProcess(tmp_path / "other") as other:
        other.serve()
        servers = (broker.bootstrap_servers, other.bootstrap_servers)
        names = (*servers, "clicks")
        named = MirrorProcess(
            tmp_path / "named", *names, "--group", "my-own", session_ms=SESSION_MS
        )
        plain = MirrorProcess(tmp_path / "plain", *names, session_ms=SESSION_MS)
        inspector = inspector_of(broker.bootstrap_servers)
        with named, plain:
            named.launch()
            plain.serve()
            until(
                lambda: [each.lag for each in inspector.mirrors().groups] == [0, 0],
                "both have committed",
            )
            destination_id = inspector_of(other.bootstrap_servers).cluster().id
            first, second = inspector.mirrors().groups
        assert (first.id, first.mirrors_to) == (
            f"logbroker-mirror-{destination_id}",
            destination_id,
        )
        assert (second.id, second.mirrors_to) == ("my-own", None)


def test_partitions_of_other_brokers_are_reported_if_one_hangs_or_is_down(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    chroot = zookeeper.fresh_chroot()
    with BrokerCluster(tmp_path, chroot, count=2, session_s=LONG_SESSION_S) as cluster:
        cluster.serve()
        log = WrittenLog(cluster.bootstrap_servers)
        log.make_topic("clicks", 2)
        cluster.until_leaders("clicks", [1, 2])
        log.publish("clicks", [Sent(b"a", partition=each, timestamp=TIME_MS) for each in (0, 1)])
        settings = Settings(bootstrap_servers=cluster.bootstrap_servers)
        inspector = LogInspector(settings, time_s_max=HANGING_S)
        browser = LogBrowser(settings, inspector.requests, time_s_max=HANGING_S)
        until(lambda: inspector.topic("clicks").gaps == (), "all partitions are reported")
        assert inspector.topic("clicks").topic.messages == 2
        assert [each.id for each in inspector.cluster().brokers] == [1, 2]
        history = LogHistory(cluster.bootstrap_servers, topic="clicks")
        assert history.partition_count() == 2

        cluster.brokers[2].pause()
        until(
            lambda: has_gaps_of_one_broker(inspector, browser),
            "the other broker's partition is reported",
        )
        until(lambda: is_served(history), "the topic is known")
        cluster.brokers[2].resume()
        until(lambda: inspector.topic("clicks").gaps == (), "all partitions are reported again")

        cluster.brokers[2].stop()
        cluster.until_live(1)
        until(
            lambda: [each.id for each in inspector.cluster().brokers] == [1],
            "the client knows",
        )
        until(lambda: inspector.topic("clicks").gaps == (), "all brokers respond")
        detail = inspector.topic("clicks")
        page = browser.browse(BrowseQuery("clicks"))
    here, away = detail.partitions
    assert (here.leader, here.end_offset, here.last_ms) == (1, 1, TIME_MS)
    assert (away.leader, away.end_offset, away.last_ms, away.bytes) == (None, None, None, None)
    assert here.bytes
    assert detail.topic.offline == 1
    # A part is not taken for the whole.
    assert (detail.topic.messages, detail.topic.bytes) == (None, None)
    assert [each.partition for each in page.messages] == [0]
    assert page.gaps == (Gap("messages", "partition 1 has no leader"),)


def is_served(history: LogHistory) -> bool:
    try:
        history.check()
    except LogUnavailable:
        return False  # the client asked the broker that hangs
    return True


def has_gaps_of_one_broker(inspector: LogInspector, browser: LogBrowser) -> bool:
    """Report whether one broker's partition is complete and the other's has gaps."""
    try:
        detail = inspector.topic("clicks")
        page = browser.browse(BrowseQuery("clicks"))
    except LogUnavailable:
        return False  # the client asked the broker that hangs
    here, hangs = detail.partitions
    figures = {gap.figure for gap in detail.gaps}
    return (
        (here.end_offset, here.last_ms, bool(here.bytes)) == (1, TIME_MS, True)
        and (hangs.end_offset, hangs.last_ms, hangs.bytes) == (None, None, None)
        and figures == {"offsets", "times", "bytes"}
        and [each.partition for each in page.messages] == [0]
        and [gap.figure for gap in page.gaps] == ["messages"]
    )


def test_a_broker_that_hangs_costs_its_figures_and_no_more_than_the_time(
    broker: BrokerProcess,
) -> None:
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic("clicks")
    settings = Settings(bootstrap_servers=broker.bootstrap_servers)
    inspector = LogInspector(settings, time_s_max=2.0)
    until(lambda: inspector.topic("clicks").gaps == (), "all partitions are reported")
    broker.pause()
    with pytest.raises(LogUnavailable):
        inspector.topics()
    broker.resume()
    until(lambda: inspector.topic("clicks").gaps == (), "all partitions are reported again")


def test_concurrent_inspections_are_limited(broker: BrokerProcess) -> None:
    settings = Settings(bootstrap_servers=broker.bootstrap_servers)
    inspector = LogInspector(settings, at_a_time=1)
    with inspector._inspection(), pytest.raises(InspectionsBusy):
        inspector.cluster()
    assert inspector.cluster().brokers
