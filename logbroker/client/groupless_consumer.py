"""librdkafka consumers that read assigned partitions and join no group."""

import logging
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from logbroker.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)

COORDINATOR_ERRORS: Final = frozenset(
    (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.GROUP_AUTHORIZATION_FAILED)
)
"""Errors to ignore: librdkafka requires a group id and looks for its coordinator all the same."""


def make_consumer(settings: dict[str, Any]) -> Consumer:
    """Create a consumer with no partitions assigned; `settings` are librdkafka's.

    Raises:
        ConfigurationError: librdkafka rejects the settings.
    """
    try:
        return Consumer(settings, logger=_log)
    except KafkaException as error:
        raise ConfigurationError(f"client_settings: {error.args[0].str()}") from None
