"""One or two of the paper's consumers, by what they are handed and what stands in ZooKeeper."""

import functools
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from kazoo.client import KazooClient

from logbroker.consumer import (
    BrokersUnavailable,
    ClientClosed,
    ConsumerConnector,
    FetchFailed,
    Message,
    MessageStream,
    NewMessage,
    Producer,
    StreamsExist,
)
from logbroker.errors import ConfigurationError
from logbroker.registry.zookeeper.lease import boot_clock_s
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.paper_group import make_topic
from tests.support.kafka.zookeeper import SharedZooKeeper, ZooKeeperServer
from tests.support.processes.ports import free_port
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import DEADLINE_S, until

TOPIC = "clicks"


class Stage:
    """A broker, a tree of its own in ZooKeeper, and what is connected to them."""

    def __init__(self, broker: BrokerProcess, zookeeper: str, stack: ExitStack) -> None:
        self.zookeeper = zookeeper
        self.servers = broker.bootstrap_servers
        self._stack = stack
        self.producer = stack.enter_context(Producer(self.servers))

    def connect(self, group: str = "readers", **options: Any) -> ConsumerConnector:
        arguments = {
            "zookeeper": self.zookeeper,
            "auto_offset_reset": "smallest",
            # Long enough that no test's machine is too slow for it.
            "session_timeout_s": 30.0,
            "rebalance_backoff_s": 0.2,
            **options,
        }
        connector = ConsumerConnector(group_id=group, bootstrap_servers=self.servers, **arguments)
        return self._stack.enter_context(connector)

    def stream(self, group: str = "readers", **options: Any) -> MessageStream:
        """The one stream of a new consumer."""
        return self.connect(group, **options).create_message_streams({TOPIC: 1})[TOPIC][0]

    def send(self, *values: str, key: bytes | None = None) -> None:
        messages = [value.encode() for value in values]
        self.producer.send(TOPIC, messages, key).result(DEADLINE_S)

    @functools.cached_property
    def registry(self) -> KazooClient:
        """Another client of the same tree."""
        servers, _, tree = self.zookeeper.partition("/")
        client = KazooClient(servers, timeout=30.0)
        client.start(DEADLINE_S)
        self._stack.callback(client.close)
        self._stack.callback(client.stop)
        client.ensure_path(tree)
        client.chroot = f"/{tree}"
        return client


@pytest.fixture
def stage(broker: BrokerProcess, zookeeper: SharedZooKeeper) -> Iterator[Stage]:
    make_topic(broker.bootstrap_servers, TOPIC, 1)
    with ExitStack() as stack:
        yield Stage(broker, zookeeper.fresh_chroot(), stack)


class Reader:
    """A thread that reads a stream to its end."""

    def __init__(self, stream: MessageStream) -> None:
        self.messages: list[Message] = []
        self.noted_s: list[float] = []
        self._thread = threading.Thread(target=self._read, args=(stream,))
        self._thread.start()

    def _read(self, stream: MessageStream) -> None:
        for message in stream:
            self.noted_s.append(boot_clock_s())
            self.messages.append(message)

    @property
    def values(self) -> list[str]:
        return [text(message) for message in list(self.messages)]

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def text(message: Message) -> str:
    assert message.value is not None
    return message.value.decode()


def take(stream: MessageStream, count: int) -> list[str]:
    return [text(next(stream)) for _ in range(count)]


def grow(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_S)


def test_a_message_comes_with_all_that_was_sent_and_its_place(stage: Stage) -> None:
    sent = NewMessage(b"value", headers=[("trace", b"1"), ("none", None)], timestamp_ms=1_000)
    stage.producer.send(TOPIC, [sent, NewMessage(None)], b"key").result(DEADLINE_S)
    stream = stage.stream()
    assert next(stream) == Message(
        TOPIC, 0, 0, b"key", b"value", 1_000, (("trace", b"1"), ("none", None))
    )
    second = next(stream)
    assert (second.offset, second.value, second.headers) == (1, None, ())


def test_a_new_group_begins_at_the_smallest_offset(stage: Stage) -> None:
    stage.send("a", "b")
    assert take(stage.stream(auto_offset_reset="smallest"), 2) == ["a", "b"]


def test_a_new_group_begins_at_the_largest_offset(stage: Stage) -> None:
    stage.send("before")
    stream = stage.stream(auto_offset_reset="largest")
    stage.send("after")
    assert take(stream, 1) == ["after"]


def test_the_start_offset_of_a_new_group_is_stored_without_a_commit(stage: Stage) -> None:
    stage.send("before")
    first = stage.connect(auto_offset_reset="largest", auto_commit_interval_s=None)
    first.create_message_streams({TOPIC: 1})
    first.shutdown()
    stage.send("between")
    assert take(stage.stream(auto_offset_reset="largest"), 1) == ["between"]


@pytest.mark.parametrize(("reset", "handed"), [("smallest", "old"), ("largest", "new")])
def test_an_offset_that_is_out_of_range_begins_as_a_new_group_does(
    stage: Stage, reset: str, handed: str
) -> None:
    stage.send("old")
    stage.registry.create(f"/consumers/readers/offsets/{TOPIC}/0", b"1000", makepath=True)
    reader = Reader(stage.stream(auto_offset_reset=reset, auto_commit_interval_s=0.1))
    # That it has found its place shows in what it commits.
    until_stored(stage, b"1")
    stage.send("new")
    until(lambda: "new" in reader.values, "it continues")
    assert reader.values[0] == handed


def stored(stage: Stage) -> bytes | None:
    """What the offset registry has of the first partition."""
    node = f"/consumers/readers/offsets/{TOPIC}/0"
    return stage.registry.get(node)[0] if stage.registry.exists(node) else None


def until_stored(stage: Stage, offset: bytes) -> None:
    until(lambda: stored(stage) == offset, f"{offset!r} is stored")


def test_a_message_counts_as_processed_once_the_next_one_is_asked_for(stage: Stage) -> None:
    stage.send("a", "b", "c")
    first = stage.connect()
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    assert take(stream, 2) == ["a", "b"]
    first.shutdown()
    assert stored(stage) == b"1"
    assert take(stage.stream(), 2) == ["b", "c"]


def test_an_explicit_commit_takes_what_was_handed_out_as_processed(stage: Stage) -> None:
    stage.send("a", "b", "c")
    first = stage.connect(auto_commit_interval_s=None)
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    assert take(stream, 2) == ["a", "b"]
    assert first.commit_offsets() == {(TOPIC, 0): 2}
    assert take(stream, 1) == ["c"]
    first.shutdown()
    assert stored(stage) == b"2"
    assert take(stage.stream(auto_commit_interval_s=None), 1) == ["c"]


def test_what_another_thread_was_handed_is_not_committed_for_it(stage: Stage) -> None:
    grow(stage.servers, TOPIC, 2)
    connector = stage.connect(auto_commit_interval_s=None)
    streams = connector.create_message_streams({TOPIC: 2})[TOPIC]
    for number in range(20):
        stage.send("a", "b", key=b"%d" % number)
    other = threading.Thread(target=next, args=(streams[1],))
    other.start()
    other.join()
    next(streams[0])
    next(streams[0])
    assert connector.commit_offsets() == {(TOPIC, 0): 2}


def test_without_automatic_commits_nothing_is_stored_but_by_an_explicit_one(stage: Stage) -> None:
    stage.send("a", "b")
    first = stage.connect(auto_commit_interval_s=None)
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 2)
    first.shutdown()
    assert take(stage.stream(), 2) == ["a", "b"]


def test_offsets_are_committed_by_themselves_time_and_again(stage: Stage) -> None:
    Reader(stage.stream(auto_commit_interval_s=0.1))
    for end in (b"2", b"4"):
        stage.send("a", "b")
        until_stored(stage, end)


def test_groups_are_handed_every_message_each(stage: Stage) -> None:
    stage.send("a", "b")
    assert take(stage.stream("one"), 2) == take(stage.stream("two"), 2) == ["a", "b"]


def test_a_group_may_have_any_name(stage: Stage) -> None:
    stage.send("a")
    name = "a/b c%\u00e4\U0001f600"
    first = stage.connect(name)
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    assert take(stream, 1) == ["a"]
    assert first.commit_offsets() == {(TOPIC, 0): 1}
    first.shutdown()
    stage.send("b")
    assert take(stage.stream(name), 1) == ["b"]


def test_streams_of_a_topic_share_its_partitions(stage: Stage) -> None:
    grow(stage.servers, TOPIC, 5)
    connector = stage.connect()
    readers = [Reader(each) for each in connector.create_message_streams({TOPIC: 2})[TOPIC]]
    sent = [f"{number}" for number in range(60)]
    for number, value in enumerate(sent):
        stage.send(value, key=b"%d" % number)
    until(lambda: sum(len(each.messages) for each in readers) == len(sent), "all are handed out")
    shares = [{message.partition for message in each.messages} for each in readers]
    assert shares == [{0, 1, 2}, {3, 4}]
    assert sorted(readers[0].values + readers[1].values) == sorted(sent)


def test_one_consumer_reads_several_topics(stage: Stage) -> None:
    make_topic(stage.servers, "views", 1)
    streams = stage.connect().create_message_streams({TOPIC: 1, "views": 1})
    stage.send("click")
    stage.producer.send("views", [b"view"]).result(DEADLINE_S)
    assert take(streams[TOPIC][0], 1) == ["click"]
    assert take(streams["views"][0], 1) == ["view"]


def test_the_registries_are_kafkas(stage: Stage) -> None:
    stage.send("a")
    connector = stage.connect()
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 1)
    connector.commit_offsets()
    registry = stage.registry
    (consumer,) = registry.get_children("/consumers/readers/ids")
    value, stat = registry.get(f"/consumers/readers/ids/{consumer}")
    registration = json.loads(value)
    assert stat.ephemeralOwner
    assert consumer.startswith("readers_")
    assert registration.pop("timestamp").isdecimal()
    assert registration == {"version": 1, "subscription": {TOPIC: 1}, "pattern": "static"}
    owner, stat = registry.get(f"/consumers/readers/owners/{TOPIC}/0")
    assert stat.ephemeralOwner
    assert owner == f"{consumer}-0".encode()
    offset, stat = registry.get(f"/consumers/readers/offsets/{TOPIC}/0")
    assert not stat.ephemeralOwner
    assert offset == b"1"
    connector.shutdown()
    assert registry.get_children("/consumers/readers/ids") == []
    assert registry.get_children(f"/consumers/readers/owners/{TOPIC}") == []


def test_a_partition_that_another_owns_is_waited_for(stage: Stage) -> None:
    stage.send("a")
    registry = stage.registry
    owner = f"/consumers/readers/owners/{TOPIC}/0"
    registry.create(owner, b"somebody-0", ephemeral=True, makepath=True)
    # Nothing but the owner's end can bring this about.
    reader = Reader(stage.stream(rebalance_backoff_s=10_000.0))
    until(lambda: registry.get_children("/consumers/readers/ids"), "it is registered")
    assert reader.messages == []
    registry.delete(owner)
    until(lambda: reader.values == ["a"], "it is handed the message")


def test_a_consumer_whose_registration_was_removed_registers_again(stage: Stage) -> None:
    reader = Reader(stage.stream())
    registry = stage.registry
    (consumer,) = registry.get_children("/consumers/readers/ids")
    registry.delete(f"/consumers/readers/ids/{consumer}")
    until(lambda: registry.get_children("/consumers/readers/ids") == [consumer], "it is back")
    stage.send("a")
    until(lambda: reader.values == ["a"], "it is handed the message")


def test_registrations_of_another_kind_have_no_share(stage: Stage) -> None:
    for name, value in [
        ("pattern", b'{"version":1,"subscription":{"c.*":1},"pattern":"white_list"}'),
        ("nonsense", b"\xff"),
        ("list", b"[]"),
        ("crowd", b'{"version":1,"subscription":{"clicks":1000000000},"pattern":"static"}'),
    ]:
        stage.registry.create(f"/consumers/readers/ids/{name}", value, makepath=True)
    stage.send("a")
    assert take(stage.stream(), 1) == ["a"]


def test_a_malformed_committed_offset_is_ignored(stage: Stage) -> None:
    stage.send("a")
    stage.registry.create(f"/consumers/readers/offsets/{TOPIC}/0", b"many", makepath=True)
    assert take(stage.stream(auto_offset_reset="smallest"), 1) == ["a"]


def test_new_partitions_are_found_and_read(stage: Stage) -> None:
    reader = Reader(stage.stream(partition_poll_s=0.1))
    grow(stage.servers, TOPIC, 3)
    stage.producer.close()
    with Producer(stage.servers) as producer:
        for number in range(20):
            producer.send(TOPIC, [b"%d" % number], b"%d" % number).result(DEADLINE_S)
    until(lambda: len(reader.messages) == 20, "all are handed out")
    assert {message.partition for message in reader.messages} == {0, 1, 2}


def test_a_topic_is_read_once_it_is_there_and_is_not_made_by_reading(stage: Stage) -> None:
    connector = stage.connect(partition_poll_s=0.1)
    (stream,) = connector.create_message_streams({"later": 1})["later"]
    reader = Reader(stream)
    assert "later" not in AdminClient({"bootstrap.servers": stage.servers}).list_topics().topics
    make_topic(stage.servers, "later", 2)
    stage.producer.send("later", [b"a"]).result(DEADLINE_S)
    until(lambda: reader.values == ["a"], "it is handed the message")


def test_an_expired_session_drops_prefetched_messages(
    stage: Stage, zookeeper: SharedZooKeeper
) -> None:
    stage.send(*(f"{number}" for number in range(500)))
    first = stage.connect()
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    assert take(stream, 3) == ["0", "1", "2"]
    assert first.commit_offsets() == {(TOPIC, 0): 3}
    # Of two consumers, the only partition is the one's that was registered first.
    second = stage.connect(auto_commit_interval_s=0.1)
    reader = Reader(second.create_message_streams({TOPIC: 1})[TOPIC][0])
    zookeeper.expire_session(first._session._client.client_id)
    until(lambda: len(reader.messages) == 497, "the other consumer is handed the rest")
    assert reader.values[0] == "3"
    # The last one counts as processed once the reader asks for another.
    until_stored(stage, b"500")
    second.shutdown()
    stage.send("new")
    assert take(stream, 1) == ["new"]


def test_while_zookeeper_is_silent_for_too_long_nothing_is_handed_out(
    stage: Stage, own_zookeeper: ZooKeeperServer
) -> None:
    with TcpLink(own_zookeeper.port) as link:
        connector = stage.connect(zookeeper=link.address, session_timeout_s=4.0)
        reader = Reader(connector.create_message_streams({TOPIC: 1})[TOPIC][0])
        stage.send("before")
        until(lambda: reader.values == ["before"], "it reads")
        link.stall()
        assert connector._consumption is not None
        lease = connector._consumption.coordinator.lease
        assert lease is not None
        until(lambda: not lease.is_valid(boot_clock_s()), "the lease has run out")
        stage.send("meanwhile")
        assert reader.values == ["before"]
        mended_s = boot_clock_s()
        link.mend()
        until(lambda: reader.values[-1] == "meanwhile", "it continues")
        assert all(noted_s > mended_s for noted_s in reader.noted_s[1:])
        connector.shutdown()


def test_shutting_down_ends_streams_that_wait(stage: Stage) -> None:
    connector = stage.connect()
    readers = [Reader(each) for each in connector.create_message_streams({TOPIC: 2})[TOPIC]]
    connector.shutdown()
    for reader in readers:
        reader.join()
    connector.shutdown()


def test_a_connector_that_is_shut_down_does_nothing_more(stage: Stage) -> None:
    connector = stage.connect()
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    connector.shutdown()
    assert list(stream) == []
    with pytest.raises(ClientClosed):
        connector.commit_offsets()
    with pytest.raises(ClientClosed):
        connector.create_message_streams({TOPIC: 1})


def test_shutting_down_needs_no_zookeeper(stage: Stage, own_zookeeper: ZooKeeperServer) -> None:
    connector = stage.connect(zookeeper=own_zookeeper.address)
    reader = Reader(connector.create_message_streams({TOPIC: 1})[TOPIC][0])
    stage.send("a")
    until(lambda: reader.values == ["a"], "it reads")
    own_zookeeper.kill()
    connector.shutdown()
    reader.join()


def test_a_connector_that_failed_says_so_to_all_its_users(stage: Stage) -> None:
    connector = stage.connect()
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    # Nothing that the thread which renews the lease could wait for.
    connector._session.timeout_s = None  # type: ignore[assignment]
    with pytest.raises(ClientClosed, match="failed"):
        next(stream)
    with pytest.raises(ClientClosed):
        connector.commit_offsets()
    connector.shutdown()


def test_streams_are_created_once(stage: Stage) -> None:
    connector = stage.connect()
    with pytest.raises(ClientClosed, match="has no streams"):
        connector.commit_offsets()
    connector.create_message_streams({TOPIC: 1})
    with pytest.raises(StreamsExist):
        connector.create_message_streams({TOPIC: 1})


def test_invalid_streams_are_rejected_with_every_reason(stage: Stage) -> None:
    connector = stage.connect()
    with pytest.raises(ConfigurationError, match="no topic"):
        connector.create_message_streams({})
    with pytest.raises(ConfigurationError, match=r"'a b'.*'clicks' has 0 streams"):
        connector.create_message_streams({"a b": 1, TOPIC: 0})


def test_a_setting_that_librdkafka_does_not_know_is_refused_when_streams_are_made(
    stage: Stage,
) -> None:
    connector = stage.connect(client_settings={"no.such": "setting"})
    with pytest.raises(ConfigurationError, match=r"no\.such"):
        connector.create_message_streams({TOPIC: 1})


def test_an_unreachable_zookeeper_is_reported_by_address() -> None:
    port = free_port()
    with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}"):
        ConsumerConnector(f"127.0.0.1:{port}", "readers", "127.0.0.1:1")


def test_unreachable_brokers_are_reported_and_can_be_retried(stage: Stage) -> None:
    stage.send("a")
    with TcpLink(int(stage.servers.rpartition(":")[2])) as link:
        link.cut()
        connector = ConsumerConnector(
            stage.zookeeper, "readers", link.address, auto_offset_reset="smallest"
        )
        with connector:
            with pytest.raises(BrokersUnavailable, match=TOPIC):
                connector.create_message_streams({TOPIC: 1})
            link.mend()
            (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
            assert take(stream, 1) == ["a"]


def test_corrupt_messages_are_reported_and_not_returned(stage: Stage, tmp_path: Path) -> None:
    stage.send("one message")
    (segment,) = (tmp_path / "log" / f"{TOPIC}-0").glob("*.log")
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.write(content.replace(b"one message", b"ONE message"))
    stream = stage.stream()
    with pytest.raises(FetchFailed, match=f"{TOPIC}-0"):
        next(stream)
