"""The topics of the service, and how they come to be."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from app.log.complaints import COMPLAINTS
from app.log.errors import LogUnavailable
from logbroker.client.audit_format.mark import AUDIT_TOPIC

_log: Final = logging.getLogger(__name__)

EVENTS: Final = "events"
"""What happened; rules decide to whom it is owed."""

DELIVERY_LOG: Final = "delivery_log"
"""What is owed; a record's key is the id of the webhook it is owed to."""

DELIVERY_OUTCOMES: Final = "delivery_outcomes"
"""What became of what is owed when it was delivered live: see `outcomes`."""

DELIVERY_ARCHIVE: Final = "delivery_archive"
"""What `delivery_log` kept once, brought back for replays, each in the partition that it had:
`rewind-jobs restore` makes the topic and fills it."""

REPLAY_OUTCOMES: Final = "replay_outcomes"
"""What replays brought, by the hour of the events: see `replay_outcomes`."""

AUDIT_PARTITIONS: Final = 1
"""Every process writes a few records a minute, or one a second while events come."""

AUDIT_RETENTION_MS: Final = 14 * 86_400_000
"""Longer than any replay is likely to be asked for: what was lost can be told afterwards."""


def ensure_topics(
    bootstrap_servers: str,
    *,
    partitions: int,
    retention_ms: int,
    replication_factor: int = -1,
    properties: Mapping[str, str] = {},
    timeout_s: float = 30.0,
    is_audited: bool = False,
) -> None:
    """Create the topics that are not there yet; those that are stay as they are.

    `partitions` is for good: with another number, the events of a webhook would lie in another
    partition than those before. `retention_ms` is how long `delivery_log` keeps what is owed, and
    `delivery_outcomes` and `replay_outcomes` what became of it.
    A `replication_factor` of -1 is the log's own default. `properties` are the operator's for the
    client: TLS, SASL and the like.
    With `is_audited`, `audit` is one of them. That it, or `replay_outcomes`, cannot be made is
    logged, and stops nobody: where topics are made beforehand, the version before lacked them.

    Raises:
        LogUnavailable: the log did not answer in time, or would not create one of them.
    """
    client: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    client |= {"error_cb": COMPLAINTS.report_error, **properties}
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
    if REPLAY_OUTCOMES not in there:
        topic = NewTopic(REPLAY_OUTCOMES, partitions, replication_factor, config=retention)
        _create_dispensable(admin, topic, "replay-outcomes-topic-missing", timeout_s)
    if is_audited and AUDIT_TOPIC not in there:
        retention = {"retention.ms": str(AUDIT_RETENTION_MS)}
        topic = NewTopic(AUDIT_TOPIC, AUDIT_PARTITIONS, replication_factor, config=retention)
        _create_dispensable(admin, topic, "audit-topic-missing", timeout_s)


def _create_dispensable(
    admin: AdminClient, topic: NewTopic, complaint: str, timeout_s: float
) -> None:
    try:
        _create(admin, [topic], timeout_s)
    except LogUnavailable as refusal:
        _log.error(complaint, extra={"reason": str(refusal)})


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
