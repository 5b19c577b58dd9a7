"""The Kafka client properties that an operator may set, such as those of TLS and SASL.

Names and values are librdkafka's. They override the choices of every client of the service, except
the properties on which the guarantees of the service depend.
"""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from app.config import ConfigurationError
from app.log.group_reader import group_configuration
from app.log.publisher import publisher_configuration
from app.log.reader_clients import reader_configuration
from app.variables import KAFKA_PREFIX, kafka_variable
from logbroker.client.properties import (
    BINDING_PROPERTIES,
    BOOTSTRAP_PROPERTIES,
    CONSUMER_PROPERTIES,
    PLACEHOLDER_SERVERS,
    PRODUCER_PROPERTIES,
    PropertyRules,
    find_problems,
)

_OWN: Final = (
    *("partitioner", "linger.ms", "queue.buffering.max.ms", "produce.offset.report"),
    *("isolation.level", "max.poll.interval.ms", "metadata.max.age.ms"),
)

DECIDED: Final = (
    BOOTSTRAP_PROPERTIES
    | PRODUCER_PROPERTIES
    | CONSUMER_PROPERTIES
    | BINDING_PROPERTIES
    | frozenset(_OWN)
)
"""Properties that the service sets itself, by each of their librdkafka names."""


def check_kafka_properties(properties: Mapping[str, str]) -> None:
    """Check that the client accepts the properties, without a connection.

    Raises:
        ConfigurationError: one line for each problem: variable, value, and what is allowed.
    """
    if not properties:
        return
    problems = [
        f"{kafka_variable(name)} {text}" if name else f"{KAFKA_PREFIX}*: {text}"
        for name, text in find_problems(properties, _RULES)
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))


def _make_clients(properties: Mapping[str, Any]) -> None:
    Producer(publisher_configuration(PLACEHOLDER_SERVERS, properties))
    Consumer(reader_configuration(PLACEHOLDER_SERVERS, properties))
    Consumer(group_configuration(PLACEHOLDER_SERVERS, "check", properties))


_RULES: Final = PropertyRules("the service", DECIDED, _make_clients)
