"""Listeners with TLS: stock clients, client certificates, faulty peers, and new certificates."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.protocol.consumer.fetch import FetchResponse

from logbroker.server import tls_connection
from tests.support.http.certificate_authority import CertificateAuthority, subject_of
from tests.support.http.certificates import CertificateFiles
from tests.support.kafka.broker_thread import BrokerThread
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawConnection,
    batch_of,
    fetch_request,
    produce_request,
)
from tests.support.processes.waiting import DEADLINE_S, until

LARGE = 700_000
"""Bytes of a message that takes many TLS records."""

SMALL_COUNT = 500


class Certificates:
    """The certificates of a broker and of its clients, by one authority, and of a foreign one."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority(folder)
        self.broker = self.authority.issue("broker", "127.0.0.1")
        self.client = self.authority.issue(
            "client", subject=subject_of(C="SE", O="Example", CN="client-1")
        )
        self.foreign = CertificateAuthority(folder, "foreign").issue("other")

    def client_context(self, files: CertificateFiles | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context

    def librdkafka(self, files: CertificateFiles | None = None) -> dict[str, str]:
        properties = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
        }
        if files is not None:
            properties["ssl.certificate.location"] = str(files.certificate)
            properties["ssl.key.location"] = str(files.key)
        return properties


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    """A broker with TLS that admits clients with and without a certificate."""
    with BrokerThread(
        tmp_path_factory.mktemp("broker") / "log",
        "SSL,PLAINTEXT",
        ssl_certfile=certificates.broker.both,
        ssl_ca_file=certificates.authority.certificate,
        ssl_client_auth="requested",
    ) as broker:
        yield broker


def make_topic(broker: BrokerThread, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap("PLAINTEXT")})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)


def values_of(topic: str) -> list[bytes]:
    small = [b"%s-%d" % (topic.encode(), number) for number in range(SMALL_COUNT)]
    return [*small, bytes(range(256)) * (LARGE // 256), b"end"]


def raw_tls(broker: BrokerThread, certificates: Certificates, **options: Any) -> RawConnection:
    connection = RawConnection(broker.bootstrap("SSL"), **options)
    connection.socket = certificates.client_context().wrap_socket(
        connection.socket, server_hostname="127.0.0.1"
    )
    return connection


def test_librdkafka_produces_and_consumes(broker: BrokerThread, certificates: Certificates) -> None:
    make_topic(broker, "librdkafka")
    properties = {
        "bootstrap.servers": broker.bootstrap("SSL"),
        **certificates.librdkafka(certificates.client),
    }
    producer = Producer(properties)
    for value in values_of("librdkafka"):
        producer.produce("librdkafka", value)
    assert producer.flush(DEADLINE_S) == 0
    assert "User:CN=client-1,O=Example,C=SE" in broker.principals("SSL")
    consumer = Consumer({**properties, "group.id": "g", "auto.offset.reset": "earliest"})
    with closing(consumer):
        consumer.subscribe(["librdkafka"])
        received: list[bytes | None] = []
        while len(received) < SMALL_COUNT + 2:
            messages = consumer.consume(SMALL_COUNT + 2 - len(received), DEADLINE_S)
            assert messages
            received += [message.value() for message in messages]
    assert received == values_of("librdkafka")


def test_kafka_python_produces_and_consumes(
    broker: BrokerThread, certificates: Certificates
) -> None:
    make_topic(broker, "kafka-python")
    settings = {
        "bootstrap_servers": broker.bootstrap("SSL"),
        "security_protocol": "SSL",
        "ssl_cafile": str(certificates.authority.certificate),
    }
    with closing(kafka.KafkaProducer(**settings)) as producer:
        for value in values_of("kafka-python"):
            producer.send("kafka-python", value)
        producer.flush(DEADLINE_S)
    assert broker.principals("PLAINTEXT") <= {"User:ANONYMOUS"}
    consumer = kafka.KafkaConsumer(
        "kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_S * 1000,
        **settings,
    )
    with closing(consumer):
        expected = values_of("kafka-python")
        assert [next(consumer).value for _ in expected] == expected


def test_metadata_leads_back_to_the_listener_with_tls(
    broker: BrokerThread, certificates: Certificates
) -> None:
    for listener, properties in (("SSL", certificates.librdkafka()), ("PLAINTEXT", {})):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap(listener), **properties})
        (node,) = admin.list_topics(timeout=DEADLINE_S).brokers.values()
        assert f"{node.host}:{node.port}" == broker.bootstrap(listener)


def test_a_client_that_reads_slowly_receives_every_byte(
    broker: BrokerThread, certificates: Certificates
) -> None:
    make_topic(broker, "slow")
    batches = [batch_of(bytes([number]) * LARGE) for number in range(8)]
    with raw_tls(broker, certificates, receive_buffer_bytes=4_096) as connection:
        for batch in batches:
            connection.produce("slow", batch, acks=ACKS_ALL)
        assert [connection.produced()[1:] for _ in batches] == [(0, n) for n in range(8)]
        # More than the socket's buffers hold, and more than the broker keeps in memory.
        for _ in range(6):
            connection.fetch("slow", 0)
        for _ in range(6):
            records = connection.fetched().records
            assert [record.value for record in records] == [
                bytes([number]) * LARGE for number in range(8)
            ]


def test_requests_in_one_read_are_all_answered(
    broker: BrokerThread, certificates: Certificates
) -> None:
    make_topic(broker, "pipelined")
    with raw_tls(broker, certificates) as connection:
        batch = batch_of(b"value" * 100)
        frames = []
        count = 3_000
        for _ in range(count):
            request = connection.encode(
                produce_request("pipelined", batch, acks=ACKS_LEADER), PRODUCE_VERSION
            )
            frames.append(request)
        connection.socket.sendall(b"".join(frames))
        assert [connection.produced()[2] for _ in range(count)] == list(range(count))


@pytest.mark.parametrize(("files", "fails"), [("client", False), ("foreign", True), (None, True)])
def test_a_required_certificate_must_be_from_the_authority(
    certificates: Certificates, tmp_path: Path, files: str | None, fails: bool
) -> None:
    with BrokerThread(
        tmp_path / "log",
        "SSL",
        ssl_certfile=certificates.broker.certificate,
        ssl_keyfile=certificates.broker.key,
        ssl_ca_file=certificates.authority.certificate,
        ssl_client_auth="required",
    ) as broker:
        properties = certificates.librdkafka(
            None if files is None else getattr(certificates, files)
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap("SSL"), **properties})
        if fails:
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=2)
            # The client tries again on its own, until it is gone.
            until(lambda: broker.authentication_failures > 0, "the failure is counted")
        else:
            admin.list_topics(timeout=DEADLINE_S)
            assert broker.authentication_failures == 0


def test_a_client_that_trusts_another_authority_does_not_connect(
    broker: BrokerThread, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.authority.folder / "foreign.pem"))
    failures = broker.authentication_failures
    with RawConnection(broker.bootstrap("SSL")) as connection:
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(connection.socket, server_hostname="127.0.0.1")
        until(lambda: broker.authentication_failures > failures, "the failure counted")


def test_tls_before_1_2_is_refused(broker: BrokerThread) -> None:
    contexts = broker.broker._listener._tls
    assert contexts is not None
    for context in contexts.contexts._contexts.values():
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x1a\x00\x12\x00\x00\x00\x00\x00\x01\x00\x00" + bytes(100),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01" + b"\xff" * 600,
    ],
)
def test_a_peer_without_tls_is_closed_and_counted(broker: BrokerThread, sent: bytes) -> None:
    failures = broker.authentication_failures
    with RawConnection(broker.bootstrap("SSL")) as connection:
        connection.socket.sendall(sent)
        until(lambda: broker.authentication_failures > failures, "the failure counted")
        # An alert may come first.
        try:
            while connection.socket.recv(4_096):
                pass
        except ConnectionResetError:
            pass


def client_hello(certificates: Certificates) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = certificates.client_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_unfinished_handshakes_hinder_nobody_and_end(
    broker: BrokerThread, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = client_hello(certificates)
    failures = broker.authentication_failures
    opened = broker.broker._counters.connections_opened
    with monkeypatch.context() as patch:
        patch.setattr(tls_connection, "HANDSHAKE_TIMEOUT_S", 1.5)
        hanging = [socket.create_connection(address_of(broker)) for _ in range(30)]
        until(lambda: broker.broker._counters.connections_opened >= opened + 30, "all are accepted")
    for number, each in enumerate(hanging):
        each.sendall(hello[: len(hello) * number // 29])
    with raw_tls(broker, certificates) as connection:
        make_topic(broker, "beside")
        connection.fetch("beside", 0)
        assert connection.fetched().error_code == 0
        until(lambda: broker.authentication_failures == failures + 30, "all of them closed")
        connection.fetch("beside", 0)
        assert connection.fetched().error_code == 0
    for each in hanging:
        each.close()


def test_a_handshake_may_arrive_byte_by_byte(
    broker: BrokerThread, certificates: Certificates
) -> None:
    make_topic(broker, "bytewise")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with RawConnection(broker.bootstrap("SSL")) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def exchange(step: Callable[[], Any]) -> Any:
            while True:
                try:
                    result = step()
                except ssl.SSLWantReadError:
                    result = None
                for byte in outgoing.read():
                    connection.socket.sendall(bytes([byte]))
                if result is not None:
                    return result
                incoming.write(connection.socket.recv(65_536))

        def shake() -> bool:
            client.do_handshake()
            return True

        exchange(shake)
        frame = connection.encode(
            fetch_request("bytewise", 0, min_bytes=1, max_wait_ms=0), FETCH_VERSION
        )
        exchange(lambda: client.write(frame))
        answer = exchange(lambda: client.read(65_536))
        fetched = FetchResponse.decode(answer[4:], version=FETCH_VERSION, header=True)
        assert fetched.responses[0].partitions[0].error_code == 0


def address_of(broker: BrokerThread) -> tuple[str, int]:
    host, _, port = broker.bootstrap("SSL").rpartition(":")
    return host, int(port)


def shown_certificate(broker: BrokerThread, certificates: Certificates) -> bytes:
    with raw_tls(broker, certificates) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        shown = connection.socket.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def test_a_new_certificate_is_used_without_a_restart(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = tmp_path / "used.pem"
    used.write_bytes(certificates.broker.both.read_bytes())
    with BrokerThread(tmp_path / "log", "SSL,PLAINTEXT", ssl_certfile=used) as broker:
        make_topic(broker, "kept")
        first = shown_certificate(broker, certificates)
        with raw_tls(broker, certificates) as connection:
            used.write_bytes(b"not a certificate")
            broker.broker.reload_certificates()
            until(lambda: "certificate not reloaded" in caplog.text, "the error logged")
            assert shown_certificate(broker, certificates) == first
            following = certificates.authority.issue("following", "127.0.0.1")
            used.write_bytes(following.both.read_bytes())
            broker.broker.reload_certificates()
            until(lambda: shown_certificate(broker, certificates) != first, "the new one shown")
            connection.fetch("kept", 0)
            assert connection.fetched().error_code == 0


def test_the_files_are_checked_for_changes(certificates: Certificates, tmp_path: Path) -> None:
    used = tmp_path / "used.pem"
    used.write_bytes(certificates.broker.both.read_bytes())
    with BrokerThread(tmp_path / "log", "SSL", ssl_certfile=used) as broker:
        tls = broker.broker._listener._tls
        assert tls is not None
        assert not tls.contexts.reload_if_changed()
        used.write_bytes(b"")
        assert not tls.contexts.reload_if_changed()
        used.write_bytes(certificates.authority.issue("other", "127.0.0.1").both.read_bytes())
        assert tls.contexts.reload_if_changed()
        assert not tls.contexts.reload_if_changed()
