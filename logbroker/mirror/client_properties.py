"""What the mirror decides of its Kafka clients, and leaves to nobody else."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from logbroker.client.properties import BINDING, NOWHERE, PLACE, READING, SENDING, PropertyRules
from logbroker.mirror.clients import consumer_settings, producer_settings

_COPYING: Final = (
    *("compression.type", "compression.codec"),
    *("message.max.bytes", "message.copy.max.bytes", "batch.size"),
    "topic.blacklist",
)

DECIDED: Final = PLACE | SENDING | READING | BINDING | frozenset(_COPYING)
"""What the mirror decides by itself, under each name that the client has for it."""


def _make_clients(properties: Mapping[str, Any]) -> None:
    Producer(producer_settings(NOWHERE, properties))
    Consumer(consumer_settings(NOWHERE, "nobody", properties))


RULES: Final = PropertyRules("the mirror", DECIDED, _make_clients)
