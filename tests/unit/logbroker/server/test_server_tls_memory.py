"""What a client sends over TLS takes little memory until it is decrypted."""

import ssl
import threading
from pathlib import Path

from kafka.protocol.metadata import ApiVersionsRequest

from logbroker.config import BrokerConfig
from logbroker.listeners import parse_listeners
from logbroker.server.tls_connection import RECORD_BYTES_MAX, TlsConnection
from logbroker.wire.receive_buffer import INITIAL_BYTES
from tests.support.http.certificate_authority import CertificateAuthority
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.stepped_broker import stepped_broker, turn_until

SENT_BYTES = 200_000


def test_encrypted_bytes_without_memory_of_the_budget_wait_in_the_socket(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    config = BrokerConfig(
        tmp_path / "log",
        listeners=parse_listeners("SSL://127.0.0.1:0", None),
        ssl_certfile=authority.issue("broker", "127.0.0.1").both,
    )
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with stepped_broker(config) as broker, RawConnection(f"127.0.0.1:{broker.port}") as client:
        budget = broker._listener.memory.budget
        assert budget.take(budget.bytes_max)
        request = ApiVersionsRequest(client_software_name="x" * 1000, client_software_version="1")
        frame = client.encode(request, 3)

        def send() -> None:
            client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
            client.socket.sendall(frame * (SENT_BYTES // len(frame)))

        sender = threading.Thread(target=send)
        sender.start()
        pending = [0]

        def is_sent() -> bool:
            for served in broker._listener:
                assert isinstance(served, TlsConnection)
                pending.append(served._incoming.pending)
            return not sender.is_alive()

        turn_until(broker, is_sent)
        turn_until(broker, lambda: is_sent() and not pending[-1])
    assert 0 < max(pending) <= INITIAL_BYTES + 2 * RECORD_BYTES_MAX
