"""What the audit decides of its Kafka client, and leaves to nobody else."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer

from logbroker.audit.reading import consumer_settings
from logbroker.client.properties import BINDING, NOWHERE, PLACE, READING, PropertyRules

DECIDED: Final = PLACE | READING | BINDING | frozenset(("isolation.level", "fetch.wait.max.ms"))
"""What the audit decides by itself, under each name that the client has for it."""


def _make_client(properties: Mapping[str, Any]) -> None:
    Consumer(consumer_settings(NOWHERE, properties))


RULES: Final = PropertyRules("the audit", DECIDED, _make_client)
