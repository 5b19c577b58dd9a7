"""Health of a ZooKeeper ensemble: servers that serve, that do not, and invalid addresses."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from app.log.zookeeper_health import SERVERS_MAX, ZooKeeperServer, zookeeper_health
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import until

# As ZooKeeper 3.9.5 said `srvr`, three servers running.
LEADER = b"""Zookeeper version: 3.9.5-293c895a8d966a3ecb92872be4a1daf87d725da2, built on \
2026-02-11 20:18 UTC
Latency min/avg/max: 0/0.0/0
Received: 4
Sent: 3
Connections: 1
Outstanding: 0
Zxid: 0x100000000
Mode: leader
Node count: 5
Proposal sizes last/min/max: -1/-1/-1
"""
FOLLOWER = LEADER.replace(b"leader", b"follower").partition(b"Proposal")[0]

LONG_S = 60.0
"""For those that answer, however busy the machine is."""


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Takes one connection; says something and closes it, or says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        if answer is not None:

            def serve() -> None:
                with server.accept()[0] as connection:
                    connection.recv(100)
                    connection.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        if answer is not None:
            thread.join()


def test_a_standalone_server_is_reported_with_its_mode(zookeeper: SharedZooKeeper) -> None:
    served = (ZooKeeperServer(zookeeper.address, "standalone", None),)
    # Just started, it may not serve yet.
    until(lambda: zookeeper_health(f"{zookeeper.address}/rewind", LONG_S) == served, "it serves")


def test_the_servers_of_an_ensemble_are_reported_in_order() -> None:
    with listener(LEADER) as leader, listener(FOLLOWER) as follower:
        refused = f"127.0.0.1:{free_port()}"
        found = zookeeper_health(f"{follower},{refused},{leader}/log", LONG_S)
    assert found == (
        ZooKeeperServer(follower, "follower", None),
        ZooKeeperServer(refused, None, "Connection refused"),
        ZooKeeperServer(leader, "leader", None),
    )


def test_a_server_that_does_not_serve_is_reported_with_its_response() -> None:
    said = b"This ZooKeeper instance is not currently serving requests\n"
    with listener(said) as address:
        (server,) = zookeeper_health(address, LONG_S)
    assert server == ZooKeeperServer(address, None, said.decode().strip())
    with listener(b"x" * 100_000) as address:
        (server,) = zookeeper_health(address, LONG_S)
    assert server.problem == "x" * 200


def test_a_silent_server_does_not_delay_the_report_of_the_others(
    zookeeper: SharedZooKeeper,
) -> None:
    with listener(None) as silent:
        (server,) = zookeeper_health(silent, 0.05)
        assert server == ZooKeeperServer(silent, None, "no answer within 0.05 s")
        until(
            lambda: (
                [each.mode for each in zookeeper_health(f"{silent},{zookeeper.address}")]
                == [None, "standalone"]
            ),
            "the other server is reported",
        )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("zoo:", "invalid address: not HOST:PORT"),
        (":2181", "invalid address: not HOST:PORT"),
        ("zoo:70000", "invalid address: not HOST:PORT"),
        ("zoo:\u0663", "invalid address: not HOST:PORT"),
        ("." * 70 + ":1", "invalid host name"),
    ],
)
def test_an_invalid_address_is_reported(text: str, problem: str) -> None:
    assert zookeeper_health(text, LONG_S) == (ZooKeeperServer(text, None, problem),)


def test_no_address_has_no_servers_and_many_are_not_all_asked() -> None:
    assert zookeeper_health("") == ()
    assert zookeeper_health(" , /chroot") == ()
    refused = f"127.0.0.1:{free_port()}"
    (server,) = zookeeper_health(f"{refused},{refused}", LONG_S)
    assert server.problem == "Connection refused"
    many = ",".join(f"zoo-{number}:x" for number in range(100))
    assert len(zookeeper_health(many, LONG_S)) == SERVERS_MAX
