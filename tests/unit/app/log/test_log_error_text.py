"""Owners of replays see no addresses of brokers."""

import pytest
from confluent_kafka import KafkaError

from app.log.error_text import public_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Broker: Unknown topic or partition", "Broker: Unknown topic or partition"),
        ("1/1 brokers are down", "1/1 brokers are down"),
        (
            "kafka-1.internal:9092/1: Disconnected: connection closed by peer: receive 0",
            "a broker Disconnected: connection closed by peer: receive 0",
        ),
        (
            "sasl_ssl://10.1.2.3:9093/bootstrap: Connect to ipv4#10.1.2.3:9093 failed: Refused",
            "a broker Connect to a broker failed: Refused",
        ),
        ("[::1]:9092/bootstrap: timed out after 1000 ms", "a broker timed out after 1000 ms"),
        ("fetch at offset 17 failed: 3 retries", "fetch at offset 17 failed: 3 retries"),
    ],
)
def test_addresses_of_brokers_are_left_out(text: str, shown: str) -> None:
    assert public_text(KafkaError(KafkaError._TRANSPORT, text)) == shown
