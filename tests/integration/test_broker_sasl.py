"""Listeners with SASL: stock clients, wrong passwords, impatient peers, and users."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from logbroker.server import sasl
from tests.support.http.certificate_authority import CertificateAuthority
from tests.support.kafka.broker_thread import BrokerThread
from tests.support.kafka.raw_connection import RawConnection
from tests.support.processes.waiting import DEADLINE_S, until

USER = "alice"
ODD_USER = "o=dd, na=me"
"""A name with the characters that SCRAM escapes; kafka-python and aiokafka do not escape them."""

PASSWORD = "a, pass=2Cwörd"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_SASL_MECHANISM = 33
SASL_AUTHENTICATION_FAILED = 58
LISTENERS = "SASL_SSL,SASL_PLAINTEXT,PLAINTEXT"

_Alteration = AlterUserScramCredentialsRequest


class SaslBroker(BrokerThread):
    """A broker with one user, and the settings of its clients."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.authority = CertificateAuthority(folder)
        certificate = self.authority.issue("broker", "127.0.0.1").both
        super().__init__(folder / "log", LISTENERS, ssl_certfile=certificate, **settings)
        self.admin: Any = AdminClient({"bootstrap.servers": self.bootstrap("PLAINTEXT")})
        self.add_user(USER, PASSWORD)

    def add_user(self, name: str, password: str) -> None:
        changes = [
            UserScramCredentialUpsertion(
                name, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for each in self.admin.alter_user_scram_credentials(changes).values():
            each.result(DEADLINE_S)

    def librdkafka(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanisms": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }

    def python(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap("SASL_PLAINTEXT"),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    def make_topic(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, 1)])[topic].result(DEADLINE_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as broker:
        yield broker


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_authenticates(broker: SaslBroker, mechanism: str) -> None:
    topic = f"librdkafka-{mechanism}"
    broker.make_topic(topic)
    producer = Producer(broker.librdkafka(mechanism))
    producer.produce(topic, b"value")
    assert producer.flush(DEADLINE_S) == 0
    assert f"User:{USER}" in broker.principals("SASL_SSL")
    settings = {"group.id": topic, "auto.offset.reset": "earliest"}
    with closing(Consumer({**broker.librdkafka(mechanism), **settings})) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == b"value"


def test_a_name_may_contain_what_scram_escapes(broker: SaslBroker) -> None:
    broker.add_user(ODD_USER, PASSWORD)
    settings = {**broker.librdkafka("SCRAM-SHA-512"), "sasl.username": ODD_USER}
    assert AdminClient(settings).list_topics(timeout=DEADLINE_S).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_authenticates(broker: SaslBroker, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    broker.make_topic(topic)
    with closing(kafka.KafkaProducer(**broker.python(mechanism))) as producer:
        producer.send(topic, b"value").get(DEADLINE_S)
        assert broker.principals("SASL_PLAINTEXT") >= {f"User:{USER}"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_authenticates(broker: SaslBroker, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism}"
    broker.make_topic(topic)

    async def produce() -> None:
        producer = aiokafka.AIOKafkaProducer(**broker.python(mechanism))
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"value")
        finally:
            await producer.stop()

    asyncio.run(produce())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_fails_and_is_counted(
    broker: SaslBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures = broker.authentication_failures
    wrong = AdminClient(broker.librdkafka(mechanism, "wrong-password"))
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=2)
    # The client tries again on its own, until it is gone.
    until(lambda: broker.authentication_failures > failures, "the failure is counted")
    until(lambda: "authentication failed" in caplog.text, "it is logged")
    assert "wrong-password" not in caplog.text


def test_clients_without_sasl_are_not_served(broker: SaslBroker) -> None:
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        client = AdminClient({"bootstrap.servers": broker.bootstrap(listener)})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)


# Below, one connection speaks the protocol by hand.


@pytest.fixture
def connection(broker: SaslBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
        yield connection


def shake_hands(connection: RawConnection, mechanism: str, version: int = 1) -> Any:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return connection.ask(request, SaslHandshakeResponse, version)


def authenticate(connection: RawConnection, token: bytes, version: int = 2) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return connection.ask(request, SaslAuthenticateResponse, version)


def plain(user: str = USER, password: str = PASSWORD, acting_as: str = "") -> bytes:
    return f"{acting_as}\0{user}\0{password}".encode()


def metadata(connection: RawConnection) -> Any:
    return connection.ask(MetadataRequest(topics=[]), MetadataResponse, 9)


def test_versions_may_be_asked_before_authentication(connection: RawConnection) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    keys = {each.api_key for each in connection.ask(request, ApiVersionsResponse, 3).api_keys}
    assert {17, 36, 50, 51} <= keys
    answer = shake_hands(connection, "PLAIN")
    assert (answer.error_code, tuple(answer.mechanisms)) == (0, MECHANISMS)
    assert authenticate(connection, plain()).error_code == 0
    assert metadata(connection).brokers
    assert shake_hands(connection, "PLAIN").error_code == ILLEGAL_SASL_STATE
    assert authenticate(connection, plain()).error_code == ILLEGAL_SASL_STATE


def test_nothing_else_is_served_before_authentication(connection: RawConnection) -> None:
    shake_hands(connection, "PLAIN")
    connection.send(MetadataRequest(topics=[]), 9)
    connection.until_closed()


def test_an_unknown_mechanism_is_refused_with_the_known_ones(connection: RawConnection) -> None:
    answer = shake_hands(connection, "GSSAPI")
    assert answer.error_code == UNSUPPORTED_SASL_MECHANISM
    assert tuple(answer.mechanisms) == MECHANISMS
    assert authenticate(connection, plain()).error_code == ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", plain(password="wrong-password")),
        ("PLAIN", plain(user="unknown")),
        ("PLAIN", plain(acting_as="another")),
        ("PLAIN", b"no separators"),
        ("PLAIN", b"\0user\0\xff"),
        ("PLAIN", b"\0user\0"),
        ("SCRAM-SHA-256", b"n,,n=user"),
        ("SCRAM-SHA-256", b"p=tls-unique,,n=user,r=nonce"),
        ("SCRAM-SHA-256", b"n,a=another,n=user,r=nonce"),
        ("SCRAM-SHA-256", b"n,,n=us=er,r=nonce"),
        ("SCRAM-SHA-256", b"n,,n=user,r=nonce,tokenauth=true"),
        ("SCRAM-SHA-256", b"\xff"),
        ("SCRAM-SHA-256", b""),
    ],
)
def test_a_failure_is_answered_and_ends_the_connection(
    connection: RawConnection, mechanism: str, token: bytes
) -> None:
    shake_hands(connection, mechanism)
    answer = authenticate(connection, token)
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message == sasl.FAILED
    connection.until_closed()


def test_an_unknown_user_is_challenged_like_a_known_one(broker: SaslBroker) -> None:
    challenges = []
    for _ in range(2):
        with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
            shake_hands(connection, "SCRAM-SHA-512")
            answer = authenticate(connection, b"n,,n=unknown,r=nonce")
            assert answer.error_code == 0
            challenges.append(answer.auth_bytes.decode().partition(",")[2])
            proof = b"c=biws,r=" + answer.auth_bytes.partition(b",")[0][2:] + b",p=" + b"A" * 88
            failed = authenticate(connection, proof)
            assert failed.error_code == SASL_AUTHENTICATION_FAILED
    assert challenges[0] == challenges[1], "the salt of a user does not change"


def test_tokens_without_headers_follow_the_first_version(connection: RawConnection) -> None:
    assert shake_hands(connection, "PLAIN", version=0).error_code == 0
    token = plain()
    connection.socket.sendall(len(token).to_bytes(4, "big") + token)
    assert connection.receive_frame() == b""
    assert metadata(connection).brokers


def test_a_large_frame_ends_an_unauthenticated_connection(connection: RawConnection) -> None:
    connection.socket.sendall((sasl.FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\x24\0\0")
    connection.until_closed()


def test_requests_before_authentication_are_limited(connection: RawConnection) -> None:
    for _ in range(sasl.REQUESTS_MAX):
        shake_hands(connection, "PLAIN")
    connection.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    connection.until_closed()


def test_a_client_that_does_not_authenticate_is_closed(
    broker: SaslBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl, "AUTHENTICATION_TIMEOUT_S", 0.2)
    failures = broker.authentication_failures
    with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
        # The time may be up before the handshake is answered.
        with suppress(ConnectionResetError):
            shake_hands(connection, "SCRAM-SHA-256")
        connection.until_closed()
    assert broker.authentication_failures > failures


def test_a_session_ends_unless_the_client_authenticates_again(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connections_max_reauth_ms=60_000) as broker:
        broker.add_user("another", PASSWORD)
        with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
            shake_hands(connection, "PLAIN")
            assert authenticate(connection, plain()).session_lifetime_ms == 60_000
            assert metadata(connection).brokers
            shake_hands(connection, "PLAIN")
            assert authenticate(connection, plain()).error_code == 0
            (served,) = broker.connections("SASL_PLAINTEXT")
            assert isinstance(served.gate, sasl.SaslGate)
            served.gate._expires_s = 0.0
            shake_hands(connection, "PLAIN")
            assert authenticate(connection, plain()).error_code == 0
            assert metadata(connection).brokers
            served.gate._expires_s = 0.0
            connection.send(MetadataRequest(topics=[]), 9)
            connection.until_closed()
        with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
            shake_hands(connection, "PLAIN")
            authenticate(connection, plain())
            shake_hands(connection, "PLAIN")
            answer = authenticate(connection, plain(user="another"))
            assert answer.error_code == SASL_AUTHENTICATION_FAILED


def test_librdkafka_authenticates_again_by_itself(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connections_max_reauth_ms=1_000) as broker:
        broker.make_topic("again")
        producer = Producer(broker.librdkafka("SCRAM-SHA-256"))
        requests = broker.broker._counters.requests

        def has_authenticated_again() -> bool:
            producer.produce("again", b"value")
            assert producer.flush(DEADLINE_S) == 0
            return requests[17] > 6

        until(has_authenticated_again, "handshakes beyond those of the first connections")
        assert broker.authentication_failures == 0


def test_users_are_described_changed_and_deleted(broker: SaslBroker) -> None:
    broker.add_user("changed", "first-password")
    described = broker.admin.describe_user_scram_credentials(["changed"])
    infos = described["changed"].result(DEADLINE_S).scram_credential_infos
    assert {(each.mechanism.name, each.iterations) for each in infos} == {
        ("SCRAM_SHA_256", 4096),
        ("SCRAM_SHA_512", 4096),
    }
    with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
        shake_hands(connection, "PLAIN")
        assert authenticate(connection, plain("changed", "first-password")).error_code == 0
    broker.add_user("changed", "second-password")
    with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
        shake_hands(connection, "PLAIN")
        assert authenticate(connection, plain("changed", "first-password")).error_code != 0
    deletions = [
        UserScramCredentialDeletion("changed", ScramMechanism[each])
        for each in ("SCRAM_SHA_256", "SCRAM_SHA_512")
    ]
    for each in broker.admin.alter_user_scram_credentials(deletions).values():
        each.result(DEADLINE_S)
    with pytest.raises(KafkaException, match="no SCRAM credentials"):
        broker.admin.describe_user_scram_credentials(["changed"])["changed"].result(DEADLINE_S)
    with RawConnection(broker.bootstrap("SASL_PLAINTEXT")) as connection:
        shake_hands(connection, "PLAIN")
        assert authenticate(connection, plain("changed", "second-password")).error_code != 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"iterations": 4_095}, 93),
        ({"iterations": 16_385}, 93),
        ({"salt": b""}, 93),
        ({"salted_password": bytes(31)}, 93),
        ({"name": ""}, 93),
        ({"mechanism": 3}, UNSUPPORTED_SASL_MECHANISM),
        ({"twice": True}, 92),
    ],
)
def test_an_unacceptable_credential_is_refused(
    broker: SaslBroker, changes: dict[str, Any], code: int
) -> None:
    fields = {
        "name": "refused",
        "mechanism": 1,
        "iterations": 4_096,
        "salt": bytes(16),
        "salted_password": bytes(32),
    }
    times = 2 if changes.pop("twice", False) else 1
    upsertion = _Alteration.ScramCredentialUpsertion(**{**fields, **changes})
    request = _Alteration(deletions=[], upsertions=[upsertion] * times)
    with RawConnection(broker.bootstrap("PLAINTEXT")) as connection:
        answer = connection.ask(request, AlterUserScramCredentialsResponse, 0)
    assert [each.error_code for each in answer.results] == [code]
    assert "refused" not in broker.broker._registry.view.users


def users_command(*arguments: str, password: str | None = None) -> tuple[int, str]:
    """Run `logbroker users`; returns the exit code and what it printed."""
    process = subprocess.run(
        [sys.executable, "-m", "logbroker", "users", *arguments],
        check=False,
        input=password,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "LOGBROKER_USER_PASSWORD": ""} if password is None else None,
    )
    return process.returncode, process.stdout + process.stderr


def test_users_are_managed_without_and_with_a_running_broker(tmp_path: Path) -> None:
    data_dir = tmp_path / "log"
    options = ("--data-dir", str(data_dir))
    code, text = users_command(
        "add", "first", "--password-stdin", *options, password="first-password\n"
    )
    assert (code, text) == (0, "added user first\n")
    stored = data_dir / "users.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert "first-password" not in stored.read_text()
    assert users_command("add", "x", "--password-stdin", *options, password="short\n")[0] == 2
    assert users_command("delete", "unknown", *options) == (
        1,
        "logbroker: unknown user 'unknown'\n",
    )
    with BrokerThread(data_dir, "SASL_PLAINTEXT") as broker:
        refused, text = users_command("delete", "first", *options)
        assert refused == 1
        assert "in use" in text
        config = tmp_path / "client.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.username=first\nsasl.password=first-password\n"
        )
        online = (
            *("--bootstrap-servers", broker.bootstrap("SASL_PLAINTEXT")),
            *("--client-config", str(config)),
        )
        added = users_command(
            *("add", "second", "--password-stdin", "--mechanism", "SCRAM-SHA-256"),
            *("--iterations", "5000", *online),
            password="second-password\n",
        )
        assert added == (0, "added user second\n")
        code, text = users_command("list", "--json", *online)
        assert json.loads(text) == {
            "first": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
            "second": {"SCRAM-SHA-256": 5000},
        }
        described = subprocess.run(
            [sys.executable, "-m", "logbroker", "topics", "describe", "--json", *online],
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert (described.returncode, json.loads(described.stdout)) == (0, [])
        assert users_command("delete", "first", *online) == (0, "deleted user first\n")
    assert users_command("list", *options) == (0, "second SCRAM-SHA-256=5000\n")
