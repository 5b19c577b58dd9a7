"""The Kafka clients of lookups, and a scripted broker."""

from app.log.lookup_clients import LookupClients
from tests.support.kafka.scripted_broker import ScriptedBroker


def test_an_admin_client_is_connected_when_it_is_used_first() -> None:
    with ScriptedBroker(1) as broker:
        clients = LookupClients(f"127.0.0.1:{broker.port}", {}, "test", silence_ms=4_000)
        assert clients.admin is not None
        # Lookups of clients without a connection sometimes take three seconds.
        assert broker.connections
