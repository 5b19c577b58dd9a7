"""Kafka client properties that the registry sets itself and operators cannot override."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from logbroker.client.properties import (
    BINDING_PROPERTIES,
    BOOTSTRAP_PROPERTIES,
    CONSUMER_PROPERTIES,
    PLACEHOLDER_SERVERS,
    PRODUCER_PROPERTIES,
    PropertyRules,
)
from logbroker.schemas.journal import client_settings, producer_settings
from logbroker.schemas.journal_reader import consumer_settings

_KEEPING: Final = (
    *("linger.ms", "queue.buffering.max.ms", "message.max.bytes", "isolation.level"),
    *("fetch.wait.max.ms", "fetch.error.backoff.ms", "reconnect.backoff.max.ms", "log_level"),
)

DECIDED: Final = (
    BOOTSTRAP_PROPERTIES
    | PRODUCER_PROPERTIES
    | CONSUMER_PROPERTIES
    | BINDING_PROPERTIES
    | frozenset(_KEEPING)
)
"""Every name that librdkafka has for a property which the registry sets itself."""


def _make_clients(properties: Mapping[str, Any]) -> None:
    client = client_settings(PLACEHOLDER_SERVERS, properties)
    Producer(producer_settings(client, timeout_s=1.0))
    Consumer(consumer_settings(client))


RULES: Final = PropertyRules("the registry", DECIDED, _make_clients)
