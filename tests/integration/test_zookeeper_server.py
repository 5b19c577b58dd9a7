"""The faults that other tests rely on are real ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient, KazooState

from tests.support.kafka.zookeeper import SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperServer
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import DEADLINE_S, until


@contextmanager
def client(address: str, timeout_s: float = 30.0) -> Iterator[KazooClient]:
    opened = KazooClient(address, timeout=timeout_s)
    opened.start(DEADLINE_S)
    try:
        yield opened
    finally:
        opened.stop()
        opened.close()


def test_an_expired_session_loses_its_nodes_and_its_client_hears_of_it(
    zookeeper: SharedZooKeeper,
) -> None:
    heard: list[KazooState] = []
    with client(zookeeper.address) as mine, client(zookeeper.address) as other:
        mine.add_listener(heard.append)
        mine.create("/expiring", ephemeral=True)
        before = mine.client_id[0]
        zookeeper.expire_session(mine.client_id)
        assert not zookeeper.has_session(before)
        assert not other.exists("/expiring")
        until(lambda: KazooState.LOST in heard, "the client hears that its session is over")
        until(lambda: mine.connected, "the client has a new session")
        assert mine.client_id[0] != before
        assert zookeeper.has_session(other.client_id[0])


def test_a_restarted_server_keeps_sessions_and_nodes(own_zookeeper: ZooKeeperServer) -> None:
    # A client that connects while the server starts may never be answered: none does here.
    with TcpLink(own_zookeeper.port) as link, client(link.address, timeout_s=100.0) as mine:
        mine.create("/kept", b"1", ephemeral=True)
        session = mine.client_id
        link.cut()
        own_zookeeper.restart()
        link.mend()
        until(lambda: mine.connected, "the client is connected again")
        assert mine.client_id == session
        assert mine.get("/kept")[0] == b"1"


def test_a_paused_server_answers_after_it_is_resumed(own_zookeeper: ZooKeeperServer) -> None:
    with client(own_zookeeper.address) as mine:
        own_zookeeper.pause()
        answer = mine.exists_async("/")
        assert not answer.ready()
        own_zookeeper.resume()
        assert answer.get(DEADLINE_S)


def test_an_ensemble_lives_without_its_leader(zookeeper_ensemble: ZooKeeperEnsemble) -> None:
    with client(zookeeper_ensemble.address) as mine:
        mine.create("/kept", b"1")
        zookeeper_ensemble.leader.kill()
        until(lambda: mine.connected, "the client found another server")
        assert mine.retry(mine.set, "/kept", b"2").version == 1


def test_each_chroot_is_a_fresh_one(zookeeper: SharedZooKeeper) -> None:
    assert zookeeper.fresh_chroot() != zookeeper.fresh_chroot()


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_a_client_behind_a_broken_link_loses_its_session(
    zookeeper: SharedZooKeeper, fault: str
) -> None:
    with TcpLink(zookeeper.port) as link, client(link.address, timeout_s=1.0) as mine:
        session = mine.client_id[0]
        getattr(link, fault)()
        until(lambda: not zookeeper.has_session(session), "the session is over")
        link.mend()
        until(lambda: mine.connected and mine.client_id[0] != session, "it has a new one")
