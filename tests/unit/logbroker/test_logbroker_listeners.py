"""Listeners in Kafka's syntax: what is read, and what is reported."""

from pathlib import Path

import pytest

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError
from logbroker.listeners import (
    ListenerAddress,
    ListenerConfig,
    SecurityProtocol,
    parse_address,
    parse_listeners,
)

PLAINTEXT = SecurityProtocol.PLAINTEXT


def test_a_listener_is_named_after_its_protocol_or_mapped_to_one() -> None:
    assert parse_listeners(
        "PLAINTEXT://127.0.0.1:9092, outside://[::1]:9093",
        "OUTSIDE:PLAINTEXT",
        "OUTSIDE://log.example:19093",
    ) == (
        ListenerConfig("PLAINTEXT", PLAINTEXT, "127.0.0.1", 9092),
        ListenerConfig("OUTSIDE", PLAINTEXT, "::1", 9093, "log.example", 19093),
    )


@pytest.mark.parametrize(
    ("listeners", "protocols", "advertised", "problem"),
    [
        ("", None, None, "listeners is empty; expected NAME://HOST:PORT"),
        ("127.0.0.1:9092", None, None, "listeners has '127.0.0.1:9092'; expected NAME://HOST:PORT"),
        ("PLAINTEXT://h:65536", None, None, "listeners has 'PLAINTEXT://h:65536'; expected"),
        ("PLAINTEXT://h:x", None, None, "listeners has 'PLAINTEXT://h:x'; expected"),
        ("PLAINTEXT://::1:9092", None, None, "listeners has 'PLAINTEXT://::1:9092'; expected"),
        ("PLAINTEXT://a:1,plaintext://b:2", None, None, "listeners has PLAINTEXT twice"),
        ("INSIDE://h:1", None, None, "listener_security_protocol_map has no entry for listener"),
        ("INSIDE://h:1", "INSIDE:TLS", None, "listener_security_protocol_map has 'INSIDE:TLS'"),
        ("PLAINTEXT://h:1", None, "SSL://h:1", "advertised_listeners names SSL, which is not in"),
        ("PLAINTEXT://h:1", None, "PLAINTEXT://h:0", "advertised_listeners has port 0 for"),
    ],
)
def test_a_malformed_listener_is_reported_with_its_setting(
    listeners: str, protocols: str | None, advertised: str | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=r".+") as refused:
        parse_listeners(listeners, protocols, advertised)
    assert str(refused.value).startswith(problem)


def test_a_registered_address_is_read_with_its_protocol() -> None:
    address = ListenerAddress("OUTSIDE", PLAINTEXT, "::1", 9093)
    assert str(address) == "OUTSIDE://[::1]:9093"
    assert parse_address(str(address), {"OUTSIDE": "PLAINTEXT"}) == address


@pytest.mark.parametrize("text", ["", "h:1", "OUTSIDE://h:1", "PLAINTEXT://h:1,SSL://h:2"])
def test_a_registered_address_that_is_none_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_address(text, {})


def test_listen_is_one_plaintext_listener(tmp_path: Path) -> None:
    config = BrokerConfig(
        tmp_path, host="0.0.0.0", port=9, advertised_host="log.example", insecure=True
    )
    assert config.served_listeners == (
        ListenerConfig("PLAINTEXT", PLAINTEXT, "0.0.0.0", 9, "log.example"),
    )


def test_each_listener_on_every_address_needs_one_for_its_clients(tmp_path: Path) -> None:
    listeners = parse_listeners("PLAINTEXT://127.0.0.1:1,OUT://:2", "OUT:PLAINTEXT")
    with pytest.raises(ConfigurationError, match="advertised_listeners has no address for OUT"):
        BrokerConfig(tmp_path, listeners=listeners, insecure=True)
