"""The settings of a raw client, from properties with librdkafka's or Java's names.

Properties that do not concern reading are ignored, as Kafka clients do. A property whose omission
would make a connection less safe is rejected by name. No message shows a value that may be secret.
"""

import functools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from logbroker.client.raw.parsing.jaas import parse_jaas
from logbroker.client.raw.parsing.metadata import BrokerAddress
from logbroker.client.raw.parsing.property_reader import PropertyReader
from logbroker.client.raw.tls import UNDERSTOOD as UNDERSTOOD_OF_TLS
from logbroker.client.raw.tls import TlsSettings, read_tls
from logbroker.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES: Final = {"PlainLoginModule": MECHANISMS[:1], "ScramLoginModule": MECHANISMS[1:]}
_LOGIN_OPTIONS: Final = frozenset(("username", "password"))

CLIENT_ID: Final = "rewind"
DEFAULT_PORT: Final = 9092
REQUEST_TIMEOUT_MS: Final = 30_000
SETUP_TIMEOUT_MS: Final = 10_000
FETCH_WAIT_MS: Final = 500
RETRY_BACKOFF_MS: Final = 100
ANSWER_BYTES_MAX: Final = 100_000_000
"""As in librdkafka; Java's client has no limit."""

ANSWER_BYTES_LEAST: Final = 2**16
"""The size of a response about a few hundred partitions."""

UNDERSTOOD: Final = frozenset(
    (
        *("bootstrap.servers", "metadata.broker.list", "client.id", "security.protocol"),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *("sasl.jaas.config", "isolation.level", "request.timeout.ms", "socket.timeout.ms"),
        *("socket.connection.setup.timeout.ms", "fetch.max.wait.ms", "fetch.wait.max.ms"),
        *("retry.backoff.ms", "receive.message.max.bytes"),
    )
)

_OF_OTHER_LOGINS: Final = ("sasl.kerberos.", "sasl.oauthbearer.", "sasl.login.refresh.")
"""Properties of other mechanisms, which are rejected themselves."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and password, and the SASL mechanism."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RawSettings:
    """The settings of one `RawCluster`; without `credentials` it is anonymous."""

    bootstrap: tuple[BrokerAddress, ...]
    client_id: str
    tls: TlsSettings | None
    credentials: Credentials | None
    is_read_committed: bool
    request_timeout_s: float
    setup_timeout_s: float
    fetch_wait_ms: int
    retry_backoff_s: float
    answer_bytes_max: int


def read_settings(properties: Mapping[str, str]) -> RawSettings:
    """Parse the settings from properties.

    Raises:
        ConfigurationError: the message lists every problem, without secrets.
    """
    reader = PropertyReader(properties)
    protocol = reader.choice(PROTOCOLS, "security.protocol") or "PLAINTEXT"
    isolation = reader.choice(("read_committed", "read_uncommitted"), "isolation.level")
    settings = RawSettings(
        bootstrap=_bootstrap(reader),
        client_id=reader.text("client.id") or CLIENT_ID,
        tls=read_tls(reader) if protocol.endswith("SSL") else None,
        credentials=_credentials(reader) if protocol.startswith("SASL") else None,
        is_read_committed=isolation == "read_committed",
        request_timeout_s=_seconds(
            reader, REQUEST_TIMEOUT_MS, "request.timeout.ms", "socket.timeout.ms"
        ),
        setup_timeout_s=_seconds(reader, SETUP_TIMEOUT_MS, "socket.connection.setup.timeout.ms"),
        fetch_wait_ms=reader.number(FETCH_WAIT_MS, 0, "fetch.max.wait.ms", "fetch.wait.max.ms"),
        retry_backoff_s=_seconds(reader, RETRY_BACKOFF_MS, "retry.backoff.ms"),
        answer_bytes_max=reader.number(
            ANSWER_BYTES_MAX, ANSWER_BYTES_LEAST, "receive.message.max.bytes"
        ),
    )
    problems = [*reader.problems, *_find_unsafe_to_ignore(properties, protocol)]
    if problems:
        raise ConfigurationError("\n".join(problems))
    _log_ignored(tuple(sorted(properties.keys() - UNDERSTOOD - UNDERSTOOD_OF_TLS)))
    return settings


def _seconds(reader: PropertyReader, default_ms: int, *names: str) -> float:
    return reader.number(default_ms, 1, *names) / 1000


def _bootstrap(reader: PropertyReader) -> tuple[BrokerAddress, ...]:
    names = ("bootstrap.servers", "metadata.broker.list")
    texts = [part.strip() for part in (reader.text(*names) or "").split(",") if part.strip()]
    addresses = tuple(filter(None, map(_address, texts)))
    if not texts:
        reader.problems.append("bootstrap.servers is missing; expected HOST:PORT,...")
    elif len(addresses) < len(texts):
        reader.problems.append(
            f"{reader.name_of(*names)} is {','.join(texts)!r}; expected HOST:PORT,..."
        )
    return addresses


def _address(text: str) -> BrokerAddress | None:
    """Parse `HOST`, `HOST:PORT` or `[IPV6]:PORT`, as librdkafka and Java do."""
    # Both clients accept a protocol prefix.
    text = text.rpartition("://")[2]
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_port = port.isdecimal() and 0 < int(port) < 2**16
    return BrokerAddress(host, int(port)) if host and is_port else None


def _credentials(reader: PropertyReader) -> Credentials | None:
    mechanism = reader.choice(MECHANISMS, "sasl.mechanism", "sasl.mechanisms")
    if mechanism is None:
        if reader.text("sasl.mechanism", "sasl.mechanisms") is None:
            # Kafka's clients would default to GSSAPI.
            reader.problems.append(f"sasl.mechanism is missing; allowed: {', '.join(MECHANISMS)}")
        return None
    username, password = _jaas_user(reader, mechanism)
    if username is None:
        username, password = reader.text("sasl.username"), reader.text("sasl.password")
    if username and password:
        return Credentials(mechanism, username, password)
    reader.problems.append(
        f"{mechanism} requires sasl.username and sasl.password, or sasl.jaas.config with both"
    )
    return None


def _jaas_user(reader: PropertyReader, mechanism: str) -> tuple[str | None, str | None]:
    text = reader.text("sasl.jaas.config")
    if text is None:
        return None, None
    try:
        module = parse_jaas(text)
    except ConfigurationError as error:
        reader.problems.append(f"sasl.jaas.config is malformed: {error}")
        return None, None
    if mechanism not in _MODULES.get(module.name, ()):
        reader.problems.append(
            f"sasl.jaas.config names {module.name}, which is not for {mechanism}"
        )
    if unknown := sorted(module.options.keys() - _LOGIN_OPTIONS):
        reader.problems.append(
            f"sasl.jaas.config has {', '.join(unknown)}; allowed: username, password"
        )
    return module.options.get("username"), module.options.get("password")


def _find_unsafe_to_ignore(properties: Mapping[str, str], protocol: str) -> Iterator[str]:
    """Yield unknown properties that restrict trust or configure authentication."""
    concerned = ["security."]
    concerned += ["ssl.", "enable.ssl."] if protocol.endswith("SSL") else []
    concerned += ["sasl.", "enable.sasl."] if protocol.startswith("SASL") else []
    for name in sorted(properties.keys() - UNDERSTOOD - UNDERSTOOD_OF_TLS):
        if name.startswith(tuple(concerned)) and not name.startswith(_OF_OTHER_LOGINS):
            yield f"{name} is not supported, and unsafe to ignore: remove it"


@functools.cache
def _log_ignored(names: tuple[str, ...]) -> None:
    """Log ignored properties once per process and set of names."""
    if names:
        _log.warning("ignored properties: %s", ", ".join(names))
