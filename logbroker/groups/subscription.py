"""The topics that a consumer's subscription names: all that a coordinator ever reads of it.

    0  version  int16
    2  topics   int32 count, then each an int16 length and UTF-8
    .. user data and more, by version

Source: Kafka, the schema `ConsumerProtocolSubscription`.
"""

import struct
from collections.abc import Iterator
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members subscribe to topics."""

_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics' names; none where the bytes are no subscription."""
    try:
        return frozenset(_topics(subscription))
    except (struct.error, ValueError):
        return None


def _topics(data: bytes) -> Iterator[str]:
    _, count = _VERSION_AND_COUNT.unpack_from(data)
    position = _VERSION_AND_COUNT.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, position)
        start = position + _LENGTH.size
        position = start + length
        if not start <= position <= len(data):
            raise ValueError(f"topic of {length} bytes where {len(data) - start} are left")
        yield data[start:position].decode()
