"""Create the topic of the registry's log, and reject topics that could lose records."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from logbroker.errors import ConfigurationError
from logbroker.schemas.errors import StoreUnavailable

_log: Final = logging.getLogger(__name__)

RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""Fits a schema of 1 MB as JSON within JSON, with its references."""

KEPT_FOR_EVER: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Compaction is harmless for Confluent's registry; here each record names the one before."""

_PASSING: Final = frozenset(("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"))


def ensure_topic(
    properties: Mapping[str, Any], topic: str, replication_factor: int, timeout_s: float
) -> str:
    """Create the topic if it is missing, and check that it keeps all records in one order.

    Returns the id of the cluster; empty if the brokers report none.

    Raises:
        StoreUnavailable: the log is unreachable, or did not create the topic.
        ConfigurationError: the topic has several partitions, or would delete records.
    """
    try:
        admin = AdminClient(dict(properties), logger=_log)
        cluster = admin.list_topics(timeout=timeout_s)
        known = cluster.topics.get(topic)
        if known is None:
            _create(admin, topic, replication_factor, timeout_s)
        elif len(known.partitions) != 1:
            raise ConfigurationError(
                f"topic {topic!r} has {len(known.partitions)} partitions; a registry needs one,"
                " as its records count in one order"
            )
        _expect_kept(topic, _settings(admin, topic, timeout_s))
        return cluster.cluster_id or ""
    except KafkaException as refusal:
        raise _refused(topic, refusal.args[0]) from refusal


def _create(admin: AdminClient, topic: str, replication_factor: int, timeout_s: float) -> None:
    settings = {**KEPT_FOR_EVER, "max.message.bytes": str(RECORD_BYTES_MAX)}
    new = NewTopic(topic, 1, replication_factor, config=settings)
    outcome = admin.create_topics([new], operation_timeout=timeout_s, request_timeout=timeout_s)
    try:
        outcome[topic].result()
    except KafkaException as refusal:
        # Another registry that starts at the same time may have created it.
        if refusal.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _settings(admin: AdminClient, topic: str, timeout_s: float) -> Mapping[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result()
    return {name: entry.value for name, entry in described.items()}


def _expect_kept(topic: str, settings: Mapping[str, str | None]) -> None:
    wrong = [
        f"{name} is {settings[name]} and must be {wanted}"
        for name, wanted in KEPT_FOR_EVER.items()
        if name in settings and settings[name] != wanted
    ]
    if wrong:
        raise ConfigurationError(f"topic {topic!r} would delete schemas: {'; '.join(wrong)}")


def _refused(topic: str, error: KafkaError) -> StoreUnavailable | ConfigurationError:
    if error.name() in _PASSING or error.retriable():
        return StoreUnavailable(f"The log is unreachable: {error.str()}.")
    return ConfigurationError(f"topic {topic!r} cannot be used: {error.str()} ({error.name()})")
