"""The text of an error of the Kafka client, as the owner of a replay sees it."""

import re
from typing import Final

from confluent_kafka import KafkaError

_ADDRESS: Final = re.compile(r"\S+:\d{1,5}(?:/[\w.-]+)?\b:?")
"""HOST:PORT, also with a protocol in front and the id of a broker behind it."""


def public_text(error: KafkaError) -> str:
    """The text of `error` without the addresses of brokers: they are the operator's.

    The log of the process has them.
    """
    return _ADDRESS.sub("a broker", error.str())
