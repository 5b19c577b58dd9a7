"""Which properties of the Kafka client an operator sets, such as those of TLS and SASL.

Names and values are librdkafka's. Every client of the service takes them, in front of its own
choices; what the promises of the service rest on is not among them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, libversion

from app.config import KAFKA_PREFIX, ConfigurationError, kafka_variable
from app.log.group_reader import group_configuration
from app.log.publisher import publisher_configuration
from app.log.reader import reader_configuration

_PLACE: Final = ("bootstrap.servers", "metadata.broker.list")

_PUBLISHING: Final = (
    *("acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee"),
    *("max.in.flight", "max.in.flight.requests.per.connection"),
    *("retries", "message.send.max.retries", "delivery.timeout.ms", "message.timeout.ms"),
    *("partitioner", "linger.ms", "queue.buffering.max.ms", "queuing.strategy"),
    *("transactional.id", "transaction.timeout.ms"),
    *("delivery.report.only.error", "produce.offset.report"),
)
"""What is acknowledged is in the log, once, and where replays look for it."""

_READING: Final = (
    *("group.id", "group.instance.id", "group.protocol", "group.protocol.type"),
    *("group.remote.assignor", "partition.assignment.strategy", "max.poll.interval.ms"),
    *("enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms"),
    *("enable.auto.offset.store", "offset.store.method", "auto.offset.reset"),
    *("enable.partition.eof", "check.crcs", "isolation.level", "allow.auto.create.topics"),
    "metadata.max.age.ms",
)
"""Nothing is passed over, and a position is stored only when it is due."""

# Python's binding keeps these for itself, and not as texts.
_BINDING: Final = ("logger", "default.topic.config")

DECIDED: Final = frozenset((*_PLACE, *_PUBLISHING, *_READING, *_BINDING))
"""What the service decides by itself, under each name that the client has for it."""

_SECRET: Final = re.compile(r"password|passphrase|secret|key|pem|jaas|oauthbearer\.config")
_UNKNOWN: Final = "No such configuration property"


def check_kafka_properties(properties: Mapping[str, str]) -> None:
    """Return when the client takes the properties; no connection is made to tell.

    Raises:
        ConfigurationError: one line for each problem: variable, value, and what is allowed.
    """
    if not properties:
        return
    free = {name: value for name, value in properties.items() if name not in DECIDED}
    problems = [
        f"{_given(name, value)}; the service decides {name} by itself: leave it out"
        for name, value in properties.items()
        if name in DECIDED
    ]
    problems += _problem_with_tokens(free) or _refused(free)
    if problems:
        raise ConfigurationError("\n".join(problems))


def _problem_with_tokens(properties: Mapping[str, str]) -> list[str]:
    """The client's own way to tokens is OIDC; any other needs code beside it, and there is none."""
    mechanism = properties.get("sasl.mechanisms", properties.get("sasl.mechanism", ""))
    if mechanism.upper() != "OAUTHBEARER":
        return []
    method = "sasl.oauthbearer.method"
    if properties.get(method, "").lower() != "oidc":
        return [f"{kafka_variable(method)} is not oidc; with OAUTHBEARER only oidc is allowed"]
    source = "sasl.oauthbearer.metadata.authentication.type"
    if properties.get(source, "").lower() == "aws_iam":
        return [f"{_given(source, 'aws_iam')}; the service has no way to AWS's tokens"]
    return []


def _refused(properties: Mapping[str, str]) -> Iterator[str]:
    """What the client has against the properties; it names one at a time."""
    left = dict(properties)
    while reason := _refusal(left):
        name = next((name for name in left if f'"{name}"' in reason), None)
        if name is None:
            yield f"{KAFKA_PREFIX}*: the Kafka client refuses them together: {reason}"
            return
        yield _told(name, left.pop(name), reason)


def _refusal(properties: Mapping[str, str]) -> str:
    """Why the client does not take them; nothing when it does."""
    nowhere = "127.0.0.1:0"
    try:
        Producer(publisher_configuration(nowhere, properties) | {"log_level": 0})
        Consumer(reader_configuration(nowhere, properties) | {"log_level": 0})
        Consumer(group_configuration(nowhere, "nobody", properties) | {"log_level": 0})
    except KafkaException as refusal:
        return str(refusal.args[0].str()).strip()
    return ""


def _told(name: str, value: str, reason: str) -> str:
    if reason.startswith(_UNKNOWN):
        # What stands behind a misspelt name may be a password.
        return (
            f"{kafka_variable(name)} is no setting: the Kafka client has no property {name}; "
            f"allowed are those of librdkafka {libversion()[0]}, without what the service decides"
        )
    return f"{_given(name, value)}; the Kafka client refuses it: {reason}"


def _given(name: str, value: str) -> str:
    shown = "a value that is not shown" if _SECRET.search(name) else repr(value)
    return f"{kafka_variable(name)} is {shown}"
