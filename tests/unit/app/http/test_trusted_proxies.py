from ipaddress import ip_network

import pytest
from starlette.types import Receive, Scope, Send

from app.http.trusted_proxies import TrustedProxies

NETWORKS = [ip_network(each) for each in ("10.0.0.0/8", "fd00::/8")]


async def _ignore(scope: Scope, receive: Receive, send: Send) -> None: ...


def client(peer: str, *values: str, header: str = "x-forwarded-for") -> str:
    return TrustedProxies(_ignore, NETWORKS, header).client_of(peer, values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["192.0.2.7"], "192.0.2.7"),
        (["192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        # What the client claimed comes first, also in a header line of its own.
        (["198.51.100.1, 192.0.2.7"], "192.0.2.7"),
        (["198.51.100.1", "192.0.2.7", "10.0.0.2"], "192.0.2.7"),
        (["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (["192.0.2.7:4711"], "192.0.2.7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["::ffff:192.0.2.7"], "192.0.2.7"),
        # No address ends the search at the proxy that wrote it.
        ([], "10.0.0.1"),
        ([""], "10.0.0.1"),
        (["192.0.2.7, unknown"], "10.0.0.1"),
        (["192.0.2.7, unknown, 10.0.0.2"], "10.0.0.2"),
        (["192.0.2.7,"], "10.0.0.1"),
        (['"192.0.2.7, 198.51.100.9'], "198.51.100.9"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(values: list[str], expected: str) -> None:
    assert client("10.0.0.1", *values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["for=192.0.2.7"], "192.0.2.7"),
        (["For=192.0.2.7;proto=https;by=10.0.0.1"], "192.0.2.7"),
        (["proto=https; for = 192.0.2.7"], "192.0.2.7"),
        (['for="[2001:db8::7]:4711"'], "2001:db8::7"),
        (["for=198.51.100.1, for=192.0.2.7", "for=10.0.0.2"], "192.0.2.7"),
        (['for="192.0.2.7";ext="a,b"'], "192.0.2.7"),
        # A quote that the client left open does not hide the proxy's element.
        (['for="198.51.100.1, for=192.0.2.7'], "192.0.2.7"),
        (["for=_hidden"], "10.0.0.1"),
        (["for=unknown, for=10.0.0.2"], "10.0.0.2"),
        (["proto=https"], "10.0.0.1"),
        (["xfor=192.0.2.7"], "10.0.0.1"),
    ],
)
def test_forwarded_is_read_like_rfc_7239(values: list[str], expected: str) -> None:
    assert client("10.0.0.1", *values, header="forwarded") == expected


def test_nobody_else_chooses_an_address() -> None:
    assert client("203.0.113.5", "192.0.2.7") == "203.0.113.5"
    assert client("fd00::1", "192.0.2.7") == "192.0.2.7"
    assert client("not-an-address", "192.0.2.7") == "not-an-address"
