"""The host of a connection is what access control lists name."""

import pytest

from logbroker.server.connection import host_of


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1:9092", "127.0.0.1"),
        ("::1:9092", "::1"),
        ("fe80::1%eth0:50000", "fe80::1%eth0"),
        ("::ffff:192.0.2.7:50000", "192.0.2.7"),
    ],
)
def test_the_host_of_a_peer_has_no_port_and_no_ipv6_prefix(peer: str, host: str) -> None:
    assert host_of(peer) == host
