"""The settings of a broker that DescribeConfigs returns."""

from pathlib import Path

from logbroker.config import BrokerConfig
from logbroker.listeners import ListenerAddress, ListenerConfig, SecurityProtocol
from logbroker.registry.cluster import BrokerEndpoint
from logbroker.server.handlers.broker_settings import broker_settings


def test_every_listener_is_described_with_its_protocol_and_both_addresses(tmp_path: Path) -> None:
    plain, tls = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL
    config = BrokerConfig(
        tmp_path,
        ssl_certfile=tmp_path / "server.pem",
        listeners=(
            ListenerConfig("INTERNAL", plain, "127.0.0.1", 0),
            ListenerConfig("PUBLIC", tls, "::1", 9093, "log.example", 443),
        ),
    )
    endpoint = BrokerEndpoint.of(
        0,
        [
            ListenerAddress("INTERNAL", plain, "127.0.0.1", 41000),
            ListenerAddress("PUBLIC", tls, "log.example", 443),
        ],
    )
    values = {each.name: each.synonyms[0].value for each in broker_settings(config, endpoint)}
    assert values["listeners"] == "INTERNAL://127.0.0.1:41000,PUBLIC://[::1]:9093"
    assert values["advertised.listeners"] == "INTERNAL://127.0.0.1:41000,PUBLIC://log.example:443"
    assert values["listener.security.protocol.map"] == "INTERNAL:PLAINTEXT,PUBLIC:SSL"
