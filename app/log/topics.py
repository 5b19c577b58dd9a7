"""The topics of the service, and how they come to be."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from app.log.complaints import COMPLAINTS
from app.log.errors import LogUnavailable

EVENTS: Final = "events"
"""What happened; rules decide to whom it is owed."""

DELIVERY_LOG: Final = "delivery_log"
"""What is owed; a record's key is the id of the webhook it is owed to."""

DELIVERY_OUTCOMES: Final = "delivery_outcomes"
"""What became of what is owed when it was delivered live: see `outcomes`."""


def ensure_topics(
    bootstrap_servers: str,
    *,
    partitions: int,
    retention_ms: int,
    replication_factor: int = -1,
    properties: Mapping[str, str] = {},
    timeout_s: float = 30.0,
) -> None:
    """Create the topics that are not there yet; those that are stay as they are.

    `partitions` is for good: with another number, the events of a webhook would lie in another
    partition than those before. `retention_ms` is how long `delivery_log` keeps what is owed, and
    `delivery_outcomes` what became of it.
    A `replication_factor` of -1 is the log's own default. `properties` are the operator's for the
    client: TLS, SASL and the like.

    Raises:
        LogUnavailable: the log did not answer in time, or would not create one of them.
    """
    client: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    client |= {"error_cb": COMPLAINTS.note, **properties}
    admin = AdminClient(client)
    retention = {"retention.ms": str(retention_ms)}
    wanted = [
        NewTopic(EVENTS, partitions, replication_factor),
        NewTopic(DELIVERY_LOG, partitions, replication_factor, config=retention),
        NewTopic(DELIVERY_OUTCOMES, partitions, replication_factor, config=retention),
    ]
    try:
        there = admin.list_topics(timeout=timeout_s).topics
    except KafkaException as refusal:
        admin.poll(0)  # it may say why
        raise LogUnavailable(f"topics are not told: {refusal.args[0].str()}") from refusal
    # Only what is missing is asked for: who may not make topics is refused those that are there.
    missing = [topic for topic in wanted if topic.topic not in there]
    if missing:
        _create(admin, missing, timeout_s)


def _create(admin: AdminClient, missing: list[NewTopic], timeout_s: float) -> None:
    outcomes = admin.create_topics(missing, operation_timeout=timeout_s, request_timeout=timeout_s)
    for topic, outcome in outcomes.items():
        _expect_created(topic, outcome)


def _expect_created(topic: str, outcome: Future[None]) -> None:
    try:
        outcome.result()
    except KafkaException as refusal:
        error: KafkaError = refusal.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise LogUnavailable(f"topic {topic} could not be created: {error.str()}") from refusal
