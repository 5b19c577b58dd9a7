"""Consumers of librdkafka's that join no group: the client wants the name of one all the same."""

from typing import Final

from confluent_kafka import KafkaError

OF_UNJOINED_GROUP: Final = frozenset(
    (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.GROUP_AUTHORIZATION_FAILED)
)
"""What the client is refused when it looks for that group's coordinator; whoever reads without
one has nothing to do with it."""
