"""What an operator tells a program's Kafka clients, such as of TLS and SASL, and what cannot be.

Names and values are texts, by librdkafka's names. What a program's promises rest on it decides by
itself. Nothing is connected to find out, and values whose name tells of a secret are never shown.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, libversion

from logbroker.errors import ConfigurationError

NOWHERE: Final = "127.0.0.1:0"
"""Servers of clients that are made to see whether they can be."""

PLACE: Final = frozenset(("bootstrap.servers", "metadata.broker.list"))

SENDING: Final = frozenset(
    (
        *("acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee"),
        *("max.in.flight", "max.in.flight.requests.per.connection"),
        *("retries", "message.send.max.retries", "delivery.timeout.ms", "message.timeout.ms"),
        *("queuing.strategy", "transactional.id", "transaction.timeout.ms"),
        "delivery.report.only.error",
    )
)
"""What is acknowledged is in the log, once and in order, as far as that is in a client's power."""

READING: Final = frozenset(
    (
        *("group.id", "group.instance.id", "group.protocol", "group.protocol.type"),
        *("group.remote.assignor", "partition.assignment.strategy"),
        *("enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms"),
        *("enable.auto.offset.store", "offset.store.method", "auto.offset.reset"),
        *("enable.partition.eof", "check.crcs", "allow.auto.create.topics"),
    )
)
"""Nothing is passed over unseen, and a position is stored only when it is due."""

# Python's binding keeps these for itself, and not as texts.
BINDING: Final = frozenset(("logger", "default.topic.config"))
_CALLBACKS: Final = frozenset(
    ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit", "on_delivery")
)

_SECRET: Final = re.compile(r"password|passphrase|secret|key|pem|jaas|oauthbearer\.config")
_UNKNOWN: Final = "No such configuration property"

# The clients that are only tried have nothing to say but their exceptions.
_SILENT: Final = logging.getLogger(f"{__name__}.tried")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class PropertyRules(NamedTuple):
    """What a program decides by itself, and how it makes its clients with all the rest.

    `decided` has each name that the client has for such a thing. `make_clients` is given properties
    and makes a client of each kind with them, as the program would, but of `NOWHERE`.
    """

    program: str
    decided: frozenset[str]
    make_clients: Callable[[Mapping[str, Any]], object]


class PropertyProblem(NamedTuple):
    """What is wrong with the property of a name, or with all together where there is none."""

    name: str | None
    text: str


def read_properties(option: str, path: Path, rules: PropertyRules) -> dict[str, str]:
    """The properties of a file that `option` names, by the rules of a program.

    Raises:
        ConfigurationError: as `read_lines`, or one line for each problem in it: option, file,
            name, value, and what is allowed.
    """
    properties = read_lines(option, path)
    problems = [
        each.text if each.name is None else f"{each.name} {each.text}"
        for each in find_problems(properties, rules)
    ]
    if problems:
        raise ConfigurationError("\n".join(f"{option} {path}: {each}" for each in problems))
    return properties


def read_lines(option: str, path: Path) -> dict[str, str]:
    """The properties of a file that `option` names, whatever they are.

    A line is `name=value`; empty lines, and those that begin with `#`, say nothing.

    Raises:
        ConfigurationError: it cannot be read, or one line for each that is no property.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{option} is {str(path)!r}, which cannot be read: {error}") from (
            error
        )
    properties: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        name, separator, value = (part.strip() for part in line.partition("="))
        if not line or line.startswith("#"):
            continue
        if not separator or not name:
            # The line may be a password that lost its name.
            problems.append(f"line {number} is no property; allowed is NAME=VALUE")
        properties[name] = value
    if problems:
        raise ConfigurationError("\n".join(f"{option} {path}: {each}" for each in problems))
    return properties


def find_problems(properties: Mapping[str, str], rules: PropertyRules) -> Iterator[PropertyProblem]:
    """All that keeps a program from taking the properties."""
    decided = rules.decided | _CALLBACKS
    free = {name: value for name, value in properties.items() if name not in decided}
    for name in sorted(properties.keys() - free.keys()):
        shown = _shown(name, properties[name])
        yield PropertyProblem(
            name, f"is {shown}; {rules.program} decides {name} by itself: leave it out"
        )
    yield from _problem_with_tokens(free, rules.program) or _refused(free, rules)


def _problem_with_tokens(properties: Mapping[str, str], program: str) -> list[PropertyProblem]:
    """The client's own way to tokens is OIDC; any other needs code beside it, and there is none."""
    mechanism = properties.get("sasl.mechanisms", properties.get("sasl.mechanism", ""))
    if mechanism.upper() != "OAUTHBEARER":
        return []
    method = "sasl.oauthbearer.method"
    if properties.get(method, "").lower() != "oidc":
        return [PropertyProblem(method, "is not oidc; with OAUTHBEARER only oidc is allowed")]
    source = "sasl.oauthbearer.metadata.authentication.type"
    if properties.get(source, "").lower() == "aws_iam":
        return [PropertyProblem(source, f"is 'aws_iam'; {program} has no way to AWS's tokens")]
    return []


def _refused(properties: Mapping[str, str], rules: PropertyRules) -> Iterator[PropertyProblem]:
    """What the client has against the properties; it names one at a time."""
    left = dict(properties)
    while reason := _refusal(left, rules):
        name = next((name for name in left if f'"{name}"' in reason), None)
        if name is None:
            yield PropertyProblem(None, f"the Kafka client refuses them together: {reason}")
            return
        yield PropertyProblem(name, _told(name, left.pop(name), reason, rules.program))


def _refusal(properties: Mapping[str, str], rules: PropertyRules) -> str:
    """Why a client does not take them; nothing when all do."""
    try:
        rules.make_clients({**properties, "logger": _SILENT})
    except KafkaException as refusal:
        return str(refusal.args[0].str()).strip()
    return ""


def _told(name: str, value: str, reason: str, program: str) -> str:
    if reason.startswith(_UNKNOWN):
        # What stands behind a misspelt name may be a password.
        return (
            f"is no setting: the Kafka client has no property {name}; allowed are those of "
            f"librdkafka {libversion()[0]}, without what {program} decides"
        )
    return f"is {_shown(name, value)}; the Kafka client refuses it: {reason}"


def _shown(name: str, value: str) -> str:
    return "a value that is not shown" if _SECRET.search(name) else repr(value)
