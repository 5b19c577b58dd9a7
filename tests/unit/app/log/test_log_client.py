"""What an operator may tell the Kafka client, and what is said of the rest."""

import re

import pytest

from app.config import ConfigurationError, Settings
from app.log.client import DECIDED, check_kafka_properties


def properties(**variables: str) -> dict[str, str]:
    environ = {f"REWIND_KAFKA_{name}": value for name, value in variables.items()}
    return dict(Settings.load(environ).kafka_properties)


def refused(**variables: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        check_kafka_properties(properties(**variables))
    return str(caught.value).splitlines()


def test_variables_are_properties_with_dots_for_their_underscores() -> None:
    found = properties(SECURITY_PROTOCOL="SASL_SSL", SSL_CA_LOCATION="/etc/My_CA.pem")
    assert found == {"security.protocol": "SASL_SSL", "ssl.ca.location": "/etc/My_CA.pem"}
    assert Settings.load({}).kafka_properties == {}


def test_passwords_are_not_shown_with_the_settings() -> None:
    settings = Settings.load({"REWIND_KAFKA_SASL_PASSWORD": "hunter2"})
    assert settings.kafka_properties == {"sasl.password": "hunter2"}
    assert "hunter2" not in repr(settings) + str(settings)


def test_what_the_client_knows_is_taken() -> None:
    check_kafka_properties({})
    check_kafka_properties(
        properties(
            SECURITY_PROTOCOL="SASL_SSL",
            SASL_MECHANISMS="SCRAM-SHA-512",
            SASL_USERNAME="rewind",
            SASL_PASSWORD="hunter2",
            CLIENT_RACK="a",
            COMPRESSION_TYPE="zstd",
        )
    )


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_what_promises_rest_on_is_the_services_own(name: str) -> None:
    variable = name.upper().replace(".", "_")
    assert refused(**{variable: "1"}) == [
        f"REWIND_KAFKA_{variable} is '1'; the service sets {name} itself: remove it"
    ]


def test_every_problem_names_variable_value_and_allowed_values() -> None:
    lines = refused(
        ACKS="1", SOCKET_TIMEOUT_MS="1", SECURITY_PROTOCOL="SSLX", SASL_PASWORD="hunter2"
    )
    assert lines[0].startswith("REWIND_KAFKA_ACKS is '1'; ")
    timeout = next(line for line in lines if line.startswith("REWIND_KAFKA_SOCKET_TIMEOUT_MS"))
    assert re.match(r".* is '1'; .* outside allowed range \d+\.\.\d+$", timeout)
    protocol = next(line for line in lines if line.startswith("REWIND_KAFKA_SECURITY_PROTOCOL"))
    assert " is 'SSLX'; the Kafka client rejects it: " in protocol
    misspelt = next(line for line in lines if line.startswith("REWIND_KAFKA_SASL_PASWORD"))
    assert "the Kafka client has no property sasl.pasword; allowed: properties of libr" in misspelt
    assert len(lines) == 4
    assert "hunter2" not in "\n".join(lines)


def test_inconsistent_settings_are_reported() -> None:
    (line,) = refused(SECURITY_PROTOCOL="SASL_SSL", SASL_MECHANISMS="PLAIN")
    assert line.startswith("REWIND_KAFKA_*: ")
    assert "sasl.username and sasl.password must be set" in line
    # With what the service itself chooses, too.
    (line,) = refused(RECONNECT_BACKOFF_MS="5000")
    assert "reconnect.backoff.max.ms" in line
    (line,) = refused(SESSION_TIMEOUT_MS="400000")
    assert "session.timeout.ms" in line


@pytest.mark.parametrize("name", ["SSL_KEY_PEM", "SSL_CERTIFICATE_PEM", "SASL_JAAS_CONFIG"])
def test_a_refused_secret_is_not_shown(name: str) -> None:
    lines = refused(SECURITY_PROTOCOL="SSL", **{name: "hunter2"})
    assert "hunter2" not in "\n".join(lines)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SASL_OAUTHBEARER_METHOD": "default"},
        {
            "SASL_OAUTHBEARER_METHOD": "oidc",
            "SASL_OAUTHBEARER_METADATA_AUTHENTICATION_TYPE": "aws_iam",
        },
    ],
)
@pytest.mark.parametrize("spelling", ["SASL_MECHANISM", "SASL_MECHANISMS"])
def test_settings_without_a_token_source_are_rejected_at_the_start(
    spelling: str, variables: dict[str, str]
) -> None:
    (line,) = refused(SECURITY_PROTOCOL="SASL_SSL", **{spelling: "OAUTHBEARER"}, **variables)
    assert line.startswith("REWIND_KAFKA_SASL_OAUTHBEARER_M")
