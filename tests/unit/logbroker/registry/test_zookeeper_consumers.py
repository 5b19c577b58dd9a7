import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from logbroker.errors import ConfigurationError
from logbroker.groups.stored import PaperConsumer, PaperGroup
from logbroker.registry.zookeeper.consumers import read_paper_groups
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S


@pytest.fixture
def address(zookeeper: SharedZooKeeper) -> str:
    return zookeeper.fresh_chroot()


@pytest.fixture
def client(zookeeper: SharedZooKeeper, address: str) -> Iterator[KazooClient]:
    """Somebody else's client, below the path of the address."""
    client = KazooClient(zookeeper.address)
    client.start(DEADLINE_S)
    client.chroot = "/" + address.partition("/")[2]
    yield client
    client.stop()
    client.close()


def put(client: KazooClient, path: str, value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    client.create(path, text.encode(), makepath=True)


def test_groups_are_read_from_the_three_registries(client: KazooClient, address: str) -> None:
    subscription = {"clicks": 2, "likes": 1}
    put(client, "/consumers/readers/ids/web-2", {"version": 1, "subscription": {}})
    put(client, "/consumers/readers/ids/web-1", {"version": 1, "subscription": subscription})
    put(client, "/consumers/readers/owners/clicks/0", "web-1-0")
    put(client, "/consumers/readers/owners/clicks/10", "web-1-1")
    put(client, "/consumers/readers/offsets/clicks/0", "42")
    put(client, "/consumers/readers/offsets/likes/3", '7 {"metadata": "a note"}')
    # A name that no node can have, and a group that a broker made by Kafka's protocol.
    put(client, "/consumers/a%2Fb/membership", {"version": 1})
    assert read_paper_groups(address) == {
        "a/b": PaperGroup([], {}, {}),
        "readers": PaperGroup(
            [PaperConsumer("web-1", subscription), PaperConsumer("web-2", {})],
            {("clicks", 0): "web-1-0", ("clicks", 10): "web-1-1"},
            {("clicks", 0): 42, ("likes", 3): 7},
        ),
    }


def test_what_the_paper_does_not_know_is_left_out(client: KazooClient, address: str) -> None:
    put(client, "/consumers/readers/ids/torn", '{"version": 1')
    put(client, "/consumers/readers/ids/bare", '{"version": 1}')
    put(client, "/consumers/readers/ids/list", "[]")
    put(client, "/consumers/readers/owners/clicks/1-0", "by broker, as in 0.7")
    put(client, "/consumers/readers/offsets/clicks/0", "soon")
    put(client, "/consumers/readers/offsets/clicks/1", "")
    put(client, "/consumers/%zz/ids", "")
    assert read_paper_groups(address) == {"readers": PaperGroup([], {}, {})}


def test_without_registrations_there_are_no_groups(client: KazooClient, address: str) -> None:
    assert read_paper_groups(address) == {}
    # Looking does not even make the path.
    client.chroot = ""
    assert client.exists("/" + address.partition("/")[2]) is None


def test_an_address_that_does_not_respond_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConfigurationError, match=address):
        read_paper_groups(f"{address}/path")
