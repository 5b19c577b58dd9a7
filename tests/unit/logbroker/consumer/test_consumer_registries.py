import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from logbroker.consumer.registries import (
    GroupRegistries,
    NotRegistered,
    new_consumer_id,
    watch_brokers,
)
from logbroker.consumer.settings import GROUP_ID_LENGTH_MAX
from logbroker.groups.stored import TopicPartition
from logbroker.registry.zookeeper.session import ZooKeeperSession
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

TOPIC = "clicks"


class Member:
    """A consumer's registries under a session of its own."""

    def __init__(self, session: ZooKeeperSession, group_id: str = "readers") -> None:
        self.session = session
        self.changed = threading.Event()
        self.registries = GroupRegistries(session, group_id, self.changed.set)
        self.consumer_id = new_consumer_id(group_id)

    def register(self) -> int:
        return self.registries.register(self.consumer_id, {TOPIC: 1})

    def assignment(self, partitions: range) -> dict[TopicPartition, str]:
        return {(TOPIC, partition): f"{self.consumer_id}-0" for partition in partitions}

    @property
    def client(self) -> KazooClient:
        return self.session._client


@pytest.fixture
def join(zookeeper: SharedZooKeeper) -> Iterator[Callable[[], Member]]:
    """Gives registered members of one group; each leaves when the test ends."""
    address = zookeeper.fresh_chroot()
    with ExitStack() as stack:

        def join() -> Member:
            session = ZooKeeperSession(address, 30.0)
            session.connect()
            stack.callback(session.close)
            member = Member(session)
            assert member.register() == session.state.session_id
            return member

        yield join


Join = Callable[[], Member]


def owners(member: Member) -> dict[int, str]:
    parent = f"/consumers/readers/owners/{TOPIC}"
    names = member.client.get_children(parent)
    return {int(name): member.client.get(f"{parent}/{name}")[0].decode() for name in names}


def test_names_of_consumers_differ_and_fit_a_path() -> None:
    first, second = new_consumer_id("a/b"), new_consumer_id("a/b")
    assert first != second
    assert first.startswith("a%2Fb_")


def test_registering_again_changes_nothing(join: Join) -> None:
    member = join()
    assert member.register() == member.session.state.session_id
    assert member.registries.read_consumers() == {member.consumer_id: {TOPIC: 1}}


def test_the_consumers_of_a_group_see_each_other_and_hear_of_changes(join: Join) -> None:
    first = join()
    assert first.registries.read_consumers().keys() == {first.consumer_id}
    second = join()
    assert first.changed.wait(DEADLINE_S)
    assert first.registries.read_consumers().keys() == {first.consumer_id, second.consumer_id}
    first.changed.clear()
    second.session.close()
    assert first.changed.wait(DEADLINE_S)


def test_a_partition_has_one_owner(join: Join) -> None:
    first, second = join(), join()
    assert first.registries.claim(first.assignment(range(3)))
    assert not second.registries.claim(second.assignment(range(2, 5)))
    assert owners(first) == dict.fromkeys(range(3), f"{first.consumer_id}-0")


def test_a_refused_claim_hears_when_the_owner_releases(join: Join) -> None:
    first, second = join(), join()
    first.registries.claim(first.assignment(range(3)))
    second.registries.claim(second.assignment(range(2, 5)))
    second.changed.clear()
    first.registries.release(first.assignment(range(3)), {})
    assert second.changed.wait(DEADLINE_S)
    assert second.registries.claim(second.assignment(range(2, 5)))


def test_a_claim_of_many_partitions_that_is_refused_late_can_be_released(join: Join) -> None:
    first, second = join(), join()
    first.registries.claim(first.assignment(range(249, 250)))
    wanted = second.assignment(range(300))
    assert not second.registries.claim(wanted)
    # The portions before the one that was refused are claimed.
    assert f"{second.consumer_id}-0" in owners(second).values()
    second.registries.release(wanted, {})
    assert owners(second) == {249: f"{first.consumer_id}-0"}


def test_the_longest_names_there_are_fit_zookeepers_requests(join: Join) -> None:
    member = Member(join().session, GROUP_ID_LENGTH_MAX * "\U0001f600")
    topic = 249 * "t"
    member.registries.register(member.consumer_id, {topic: 1})
    topic_partitions = [(topic, number) for number in range(150)]
    assert member.registries.claim(dict.fromkeys(topic_partitions, f"{member.consumer_id}-0"))
    member.registries.release(topic_partitions, dict.fromkeys(topic_partitions, 2**63 - 1))
    assert len(member.registries.load_offsets(topic_partitions)) == len(topic_partitions)


def test_a_release_stores_the_offsets_of_what_was_owned_and_of_nothing_else(join: Join) -> None:
    first, second = join(), join()
    first.registries.claim(first.assignment(range(2)))
    second.registries.claim(second.assignment(range(2, 3)))
    offsets = {(TOPIC, 0): 5, (TOPIC, 2): 9}
    first.registries.release(first.assignment(range(3)), offsets)
    assert owners(first) == {2: f"{second.consumer_id}-0"}
    assert first.registries.load_offsets((TOPIC, number) for number in range(3)) == {(TOPIC, 0): 5}


def test_offsets_are_stored_as_decimals_and_read_back(join: Join) -> None:
    member = join()
    member.registries.commit({(TOPIC, 0): 0, (TOPIC, 1): 2**63 - 1})
    member.registries.commit({(TOPIC, 0): 7})
    assert member.client.get(f"/consumers/readers/offsets/{TOPIC}/0")[0] == b"7"
    assert member.registries.load_offsets([(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)]) == {
        (TOPIC, 0): 7,
        (TOPIC, 1): 2**63 - 1,
    }


def test_an_offset_with_more_behind_it_is_read_as_well(join: Join) -> None:
    member = join()
    path = f"/consumers/readers/offsets/{TOPIC}/0"
    member.client.create(path, b'12 {"leader_epoch": 3}')
    assert member.registries.load_offsets([(TOPIC, 0)]) == {(TOPIC, 0): 12}


@pytest.mark.parametrize("write", ["claim", "release", "commit"])
def test_an_unregistered_consumer_cannot_write(join: Join, write: str) -> None:
    member = join()
    member.registries.claim(member.assignment(range(1)))
    member.client.delete(f"/consumers/readers/ids/{member.consumer_id}")
    steps: dict[str, Callable[[], object]] = {
        "claim": lambda: member.registries.claim(member.assignment(range(1, 2))),
        "release": lambda: member.registries.release(member.assignment(range(1)), {}),
        "commit": lambda: member.registries.commit({(TOPIC, 0): 1}),
    }
    with pytest.raises(NotRegistered):
        steps[write]()
    assert owners(member).keys() == {0}
    assert member.registries.load_offsets([(TOPIC, 0)]) == {}


def test_what_a_lost_session_owned_cannot_be_claimed_or_committed_under_the_next(
    join: Join, zookeeper: SharedZooKeeper
) -> None:
    member = join()
    lost = member.session.state.session_id
    member.registries.claim(member.assignment(range(1)))
    zookeeper.expire_session(member.client.client_id)
    until(lambda: member.session.state.session_id not in (lost, None), "there is a new session")
    with pytest.raises(NotRegistered):
        member.registries.commit({(TOPIC, 0): 1})
    with pytest.raises(NotRegistered):
        member.registries.claim(member.assignment(range(1)))
    assert owners(member) == {}


def test_brokers_that_come_are_heard_of(join: Join) -> None:
    member = join()
    brokers = threading.Event()
    watch_brokers(member.session, [TOPIC], brokers.set)
    member.client.ensure_path("/brokers/ids")
    member.client.ensure_path("/brokers/topics")
    assert not brokers.is_set()
    watch_brokers(member.session, [TOPIC], brokers.set)
    member.client.create("/brokers/ids/1", b"{}")
    assert brokers.wait(DEADLINE_S)


def test_a_topic_that_grows_is_heard_of(join: Join) -> None:
    member = join()
    brokers = threading.Event()
    member.client.ensure_path("/brokers/ids")
    member.client.create(f"/brokers/topics/{TOPIC}", b"one", makepath=True)
    watch_brokers(member.session, [TOPIC], brokers.set)
    member.client.set(f"/brokers/topics/{TOPIC}", b"two")
    assert brokers.wait(DEADLINE_S)
