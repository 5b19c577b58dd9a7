"""The Kafka client of lookups, and a scripted broker."""

from app.log.lookup_client import LookupClient
from tests.support.kafka.scripted_broker import ScriptedBroker


def test_an_admin_client_is_connected_when_it_is_used_first() -> None:
    with ScriptedBroker(1) as broker:
        client = LookupClient(f"127.0.0.1:{broker.port}", {}, silence_ms=4_000)
        assert client.admin is not None
        # Lookups of clients without a connection sometimes take three seconds.
        assert broker.connections
