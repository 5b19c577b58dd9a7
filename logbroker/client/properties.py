"""Properties of Kafka clients from files, such as TLS and SASL settings, and their validation.

Names and values are texts, with librdkafka's names. Properties that a program's guarantees depend
on are reserved. Validation opens no connection, and never shows the value of a secret.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, libversion

from logbroker.errors import ConfigurationError
from logbroker.property_file import read_property_file

PLACEHOLDER_SERVERS: Final = "127.0.0.1:0"
"""The bootstrap servers of clients that are created only for validation."""

BOOTSTRAP_PROPERTIES: Final = frozenset(("bootstrap.servers", "metadata.broker.list"))

PRODUCER_PROPERTIES: Final = frozenset(
    (
        *("acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee"),
        *("max.in.flight", "max.in.flight.requests.per.connection"),
        *("retries", "message.send.max.retries", "delivery.timeout.ms", "message.timeout.ms"),
        *("queuing.strategy", "transactional.id", "transaction.timeout.ms"),
        "delivery.report.only.error",
    )
)
"""Properties that decide whether acknowledged records are stored once and in order."""

CONSUMER_PROPERTIES: Final = frozenset(
    (
        *("group.id", "group.instance.id", "group.protocol", "group.protocol.type"),
        *("group.remote.assignor", "partition.assignment.strategy"),
        *("enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms"),
        *("enable.auto.offset.store", "offset.store.method", "auto.offset.reset"),
        *("enable.partition.eof", "check.crcs", "allow.auto.create.topics"),
    )
)
"""Properties that decide which records are read, and when positions are committed."""

# Properties of the Python binding, whose values are not texts.
BINDING_PROPERTIES: Final = frozenset(("logger", "default.topic.config"))
_CALLBACKS: Final = frozenset(
    ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit", "on_delivery")
)

_SECRET: Final = re.compile(r"password|passphrase|secret|key|pem|jaas|oauthbearer\.config")
_UNKNOWN: Final = "No such configuration property"

# Clients that are created only for validation must not log.
_SILENT_LOG: Final = logging.getLogger(f"{__name__}.tried")
_SILENT_LOG.addHandler(logging.NullHandler())
_SILENT_LOG.propagate = False


class PropertyRules(NamedTuple):
    """The reserved properties of a program, and how it creates its clients.

    `reserved` has all names of these properties. `make_clients` creates one client of each kind
    with the given properties and `PLACEHOLDER_SERVERS`.
    """

    program: str
    reserved: frozenset[str]
    make_clients: Callable[[Mapping[str, Any]], object]


class PropertyProblem(NamedTuple):
    """A problem with the property `name`, or with their combination if `name` is None."""

    name: str | None
    text: str


def read_properties(option: str, path: Path, rules: PropertyRules) -> dict[str, str]:
    """Read and validate a file of properties that `option` names.

    Raises:
        ConfigurationError: as `read_property_file`, or one line per problem with option, file,
            name, value and allowed values.
    """
    properties = read_property_file(option, path)
    problems = [
        each.text if each.name is None else f"{each.name} {each.text}"
        for each in find_problems(properties, rules)
    ]
    if problems:
        raise ConfigurationError("\n".join(f"{option} {path}: {each}" for each in problems))
    return properties


def find_problems(properties: Mapping[str, str], rules: PropertyRules) -> Iterator[PropertyProblem]:
    """Yield every problem with the properties."""
    reserved = rules.reserved | _CALLBACKS
    allowed = {name: value for name, value in properties.items() if name not in reserved}
    for name in sorted(properties.keys() - allowed.keys()):
        shown = _redact(name, properties[name])
        yield PropertyProblem(name, f"is {shown}; {rules.program} sets {name} itself: remove it")
    yield from _check_oauth(allowed, rules.program) or _find_rejected(allowed, rules)


def _check_oauth(properties: Mapping[str, str], program: str) -> list[PropertyProblem]:
    """Reject token sources other than OIDC, which would need additional code."""
    mechanism = properties.get("sasl.mechanisms", properties.get("sasl.mechanism", ""))
    if mechanism.upper() != "OAUTHBEARER":
        return []
    method = "sasl.oauthbearer.method"
    if properties.get(method, "").lower() != "oidc":
        return [PropertyProblem(method, "is not oidc; allowed with OAUTHBEARER: oidc")]
    source = "sasl.oauthbearer.metadata.authentication.type"
    if properties.get(source, "").lower() == "aws_iam":
        return [PropertyProblem(source, f"is 'aws_iam', which {program} does not support")]
    return []


def _find_rejected(
    properties: Mapping[str, str], rules: PropertyRules
) -> Iterator[PropertyProblem]:
    """Yield the properties that the client rejects; it reports one at a time."""
    remaining = dict(properties)
    while reason := _rejection(remaining, rules):
        name = next((name for name in remaining if f'"{name}"' in reason), None)
        if name is None:
            yield PropertyProblem(None, f"the Kafka client rejects the combination: {reason}")
            return
        yield PropertyProblem(
            name, _describe_rejection(name, remaining.pop(name), reason, rules.program)
        )


def _rejection(properties: Mapping[str, str], rules: PropertyRules) -> str:
    """Return why a client rejects the properties; empty if it accepts them."""
    try:
        rules.make_clients({**properties, "logger": _SILENT_LOG})
    except KafkaException as refusal:
        return str(refusal.args[0].str()).strip()
    return ""


def _describe_rejection(name: str, value: str, reason: str, program: str) -> str:
    if reason.startswith(_UNKNOWN):
        # The value of a misspelt name may be a password.
        return (
            f"is unknown: the Kafka client has no property {name}; allowed: properties of "
            f"librdkafka {libversion()[0]} that {program} does not set itself"
        )
    return f"is {_redact(name, value)}; the Kafka client rejects it: {reason}"


def _redact(name: str, value: str) -> str:
    return "a hidden value" if _SECRET.search(name) else repr(value)
