import logging
from pathlib import Path

import pytest

from logbroker.client.raw.parsing.metadata import BrokerAddress
from logbroker.client.raw.settings import Credentials, read_settings
from logbroker.client.raw.tls import make_context
from logbroker.errors import ConfigurationError
from tests.support.http.certificates import self_signed

PLACE = {"bootstrap.servers": "log:9092"}
SECRET = "secret-word"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SCRAM = {**PLACE, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"}


def error_for_code(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        read_settings({**PLACE, **properties})
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        ("[::1]:7", [("::1", 7)]),
        ("[::1]", [("::1", 9092)]),
        ("SASL_SSL://a:1", [("a", 1)]),
    ],
)
def test_brokers_are_named_as_other_clients_name_them(
    text: str, addresses: list[tuple[str, int]]
) -> None:
    settings = read_settings({"bootstrap.servers": text})

    assert list(settings.bootstrap) == [BrokerAddress(*each) for each in addresses]


@pytest.mark.parametrize("text", ["", " , ", "a:0", "a:65536", "a:x", ":9092", "a:1,:2"])
def test_a_list_without_a_broker_or_with_a_bad_one_is_refused(text: str) -> None:
    assert "bootstrap.servers" in error_for_code({"bootstrap.servers": text})


def test_an_address_is_shown_as_it_is_written() -> None:
    assert [str(BrokerAddress("a", 1)), str(BrokerAddress("::1", 2))] == ["a:1", "[::1]:2"]


def test_the_default_is_plaintext_without_authentication() -> None:
    settings = read_settings(PLACE)

    assert (settings.tls, settings.credentials, settings.is_read_committed) == (None, None, False)


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.mechanisms": "scram-sha-512", "sasl.username": "me", "sasl.password": SECRET},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{JAAS} username="me" password="{SECRET}";',
        },
    ],
    ids=["librdkafka", "Java"],
)
def test_credentials_are_read_from_librdkafka_and_java_names(properties: dict[str, str]) -> None:
    settings = read_settings({**PLACE, "security.protocol": "sasl_plaintext", **properties})

    assert settings.credentials == Credentials("SCRAM-SHA-512", "me", SECRET)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM", "SCRAM-SHA-1"])
def test_an_unsupported_mechanism_is_rejected_by_name(mechanism: str) -> None:
    message = error_for_code({"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism})

    assert mechanism in message
    assert "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in message


def test_a_login_without_a_mechanism_is_refused_as_gssapi_would_be_meant() -> None:
    assert "sasl.mechanism is missing" in error_for_code({"security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.username": "me"}, "sasl.password"),
        ({"sasl.password": SECRET}, "sasl.username"),
        ({"sasl.jaas.config": f"{JAAS} password={SECRET}"}, "sasl.jaas.config is malformed"),
        (
            {"sasl.jaas.config": f"a.PlainLoginModule required username=me password={SECRET};"},
            "PlainLoginModule, which is not for SCRAM-SHA-256",
        ),
        (
            {"sasl.jaas.config": f"{JAAS} username=me password={SECRET} tokenauth=true;"},
            "tokenauth",
        ),
        ({"sasl.mechanisms": "PLAIN"}, "sasl.mechanism and sasl.mechanisms contradict"),
    ],
)
def test_incomplete_credentials_are_rejected_without_secrets(
    properties: dict[str, str], message: str
) -> None:
    text = error_for_code({**SCRAM, **properties})

    assert message in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        ("SSL", "ssl.crl.location"),
        ("SSL", "ssl.engine.factory.class"),
        ("SSL", "ssl.cipher.suites"),
        ("SASL_PLAINTEXT", "sasl.client.callback.handler.class"),
        ("SASL_PLAINTEXT", "sasl.login.class"),
        ("PLAINTEXT", "security.providers"),
    ],
)
def test_properties_that_are_unsafe_to_ignore_are_rejected_by_name(
    protocol: str, name: str
) -> None:
    text = error_for_code({"security.protocol": protocol, name: SECRET})

    assert f"{name} is not supported" in text
    assert SECRET not in text


def test_properties_of_unused_features_are_ignored() -> None:
    others = {"ssl.crl.location": "x", "sasl.login.class": "x", "sasl.username": "x"}

    assert read_settings({**PLACE, **others}).credentials is None


def test_unrelated_properties_are_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {**PLACE, "group.id": SECRET, "acks": "all", "unknown.setting": "x"}

    with caplog.at_level(logging.WARNING):
        read_settings(properties)
        read_settings(properties)

    (warning,) = caplog.messages
    assert "acks, group.id, unknown.setting" in warning
    assert SECRET not in warning


def test_all_problems_are_reported_together() -> None:
    text = error_for_code(
        {
            "bootstrap.servers": "a:x",
            "security.protocol": "TLS",
            "isolation.level": "serializable",
            "request.timeout.ms": "-1",
            "fetch.max.wait.ms": "soon",
        }
    )

    assert [line.split()[0] for line in text.splitlines()] == [
        "security.protocol",
        "isolation.level",
        "bootstrap.servers",
        "request.timeout.ms",
        "fetch.max.wait.ms",
    ]


def test_times_and_sizes_have_two_names() -> None:
    java = {"request.timeout.ms": "5000", "fetch.max.wait.ms": "7"}
    librdkafka = {"socket.timeout.ms": "5000", "fetch.wait.max.ms": "7"}

    assert read_settings({**PLACE, **java}) == read_settings({**PLACE, **librdkafka})
    assert read_settings({**PLACE, **java}).request_timeout_s == 5.0


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A key with a password, its certificate, and a file with both."""
    files = self_signed(tmp_path_factory.mktemp("pem"), "me", password=SECRET)
    return {name: str(path) for name, path in files._asdict().items()}


def context_of(properties: dict[str, str]) -> None:
    settings = read_settings({**PLACE, "security.protocol": "SSL", **properties})
    assert settings.tls is not None
    assert SECRET not in repr(settings)
    context = make_context(settings.tls)
    assert len(context.get_ca_certs()) == 1, "no other authority is trusted"


def test_files_are_named_by_librdkafkas_names(pem: dict[str, str]) -> None:
    context_of(
        {
            "ssl.ca.location": pem["certificate"],
            "ssl.certificate.location": pem["certificate"],
            "ssl.key.location": pem["key"],
            "ssl.key.password": SECRET,
        }
    )


def test_files_are_named_by_javas_names(pem: dict[str, str]) -> None:
    context_of(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": pem["certificate"],
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem["both"],
            "ssl.key.password": SECRET,
        }
    )


@pytest.mark.parametrize(
    ("ca", "key", "certificate"),
    [
        ("ssl.ca.pem", "ssl.key.pem", "ssl.certificate.pem"),
        ("ssl.truststore.certificates", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
    ],
    ids=["librdkafka", "Java"],
)
def test_certificates_and_keys_may_be_texts(
    pem: dict[str, str], ca: str, key: str, certificate: str
) -> None:
    text = Path(pem["certificate"]).read_text()
    secret = Path(pem["key"]).read_text()

    context_of({ca: text, key: secret, certificate: text, "ssl.key.password": SECRET})


def test_a_wrong_key_password_is_reported_without_its_value(pem: dict[str, str]) -> None:
    identity = {"ssl.certificate.location": pem["certificate"], "ssl.key.location": pem["key"]}

    for password in ({}, {"ssl.key.password": "other-word"}):
        with pytest.raises(ConfigurationError, match="key and certificate") as refused:
            context_of({**identity, **password, "ssl.ca.location": pem["certificate"]})
        assert "other-word" not in str(refused.value)


def test_stores_of_java_are_refused_by_name(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))

    assert "ssl.truststore.type is 'JKS'" in error_for_code(
        {"security.protocol": "SSL", "ssl.truststore.type": "JKS"}
    )
    with pytest.raises(ConfigurationError, match=r"trust\.jks is not PEM; JKS"):
        context_of({"ssl.truststore.location": str(store)})


def test_a_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.pem"):
        context_of({"ssl.ca.location": str(tmp_path / "none.pem")})


def test_a_key_without_its_certificate_is_refused() -> None:
    text = error_for_code({"security.protocol": "SSL", "ssl.key.pem": SECRET})

    assert "must be set together" in text
    assert SECRET not in text


def test_only_safe_versions_of_tls_are_taken() -> None:
    text = error_for_code({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1,TLSv1.1"})

    assert "ssl.enabled.protocols" in text
