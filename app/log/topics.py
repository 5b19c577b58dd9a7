"""The topics of the service, and their creation."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from app.log.client_errors import CLIENT_ERRORS
from app.log.errors import LogUnavailable
from logbroker.client.audit_format.mark import AUDIT_TOPIC

_log: Final = logging.getLogger(__name__)

EVENTS: Final = "events"
"""Published events without a webhook; rules decide which webhooks get them."""

DELIVERY_LOG: Final = "delivery_log"
"""Deliveries; the key of a record is the id of the webhook it is addressed to."""

DELIVERY_OUTCOMES: Final = "delivery_outcomes"
"""The outcomes of live deliveries: see `outcomes`."""

DELIVERY_ATTEMPTS: Final = "delivery_attempts"
"""Failed attempts of live deliveries: see `attempts`."""

DELIVERERS: Final = "rewind-delivery"
"""The consumer group that delivers `delivery_log`."""

DELIVERY_ARCHIVE: Final = "delivery_archive"
"""Former records of `delivery_log`, restored for replays into their original partitions.
`rewind-jobs restore` creates and fills the topic."""

REPLAY_OUTCOMES: Final = "replay_outcomes"
"""The outcomes of replays by hour: see `replay_outcomes`."""

REPLAY_REQUESTS: Final = "replay_requests"
"""Wakes idle workers: see `replay_requests`."""

_REPLAY_REQUESTS_RETENTION_MS: Final = 3_600_000

_OPTIONAL: Final = {
    DELIVERY_ATTEMPTS: "delivery-attempts-topic-missing",
    REPLAY_OUTCOMES: "replay-outcomes-topic-missing",
}
"""Topics without which the service works, and what is logged if they cannot be created."""

AUDIT_PARTITIONS: Final = 1
"""Every process writes a few records a minute, or one a second while events come."""

AUDIT_RETENTION_MS: Final = 14 * 86_400_000
"""Longer than the history of most replays, so that losses can be detected afterwards."""


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
    """Create missing topics; existing ones stay unchanged.

    `partitions` must never change: it decides the partition of each webhook. `retention_ms` applies
    to all topics of deliveries, outcomes and attempts. A `replication_factor` of -1 is
    the log's default. `properties` are the operator's for the client, such as those of TLS.
    With `is_audited`, `audit` is created too. If it, `delivery_attempts`, `replay_outcomes` or
    `replay_requests` cannot be created, that is logged only: topics created in advance for an older
    version lack them.

    Raises:
        LogUnavailable: the log did not answer in time, or rejected the creation of a topic.
    """
    client: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    client |= {"error_cb": CLIENT_ERRORS.report_error, **properties}
    admin = AdminClient(client)
    retention = {"retention.ms": str(retention_ms)}
    wanted = [
        NewTopic(EVENTS, partitions, replication_factor),
        NewTopic(DELIVERY_LOG, partitions, replication_factor, config=retention),
        NewTopic(DELIVERY_OUTCOMES, partitions, replication_factor, config=retention),
    ]
    try:
        existing = admin.list_topics(timeout=timeout_s).topics
    except KafkaException as refusal:
        admin.poll(0)  # runs the error callback, which logs the cause
        raise LogUnavailable(f"topics cannot be listed: {refusal.args[0].str()}") from refusal
    # Only missing topics are requested, so that existing ones need no right to create topics.
    missing = [topic for topic in wanted if topic.topic not in existing]
    if missing:
        _create(admin, missing, timeout_s)
    for name, log_event in _OPTIONAL.items():
        if name not in existing:
            topic = NewTopic(name, partitions, replication_factor, config=retention)
            _create_optional(admin, topic, log_event, timeout_s)
    if REPLAY_REQUESTS not in existing:
        retention = {"retention.ms": str(_REPLAY_REQUESTS_RETENTION_MS)}
        topic = NewTopic(REPLAY_REQUESTS, 1, replication_factor, config=retention)
        _create_optional(admin, topic, "replay-requests-topic-missing", timeout_s)
    if is_audited and AUDIT_TOPIC not in existing:
        retention = {"retention.ms": str(AUDIT_RETENTION_MS)}
        topic = NewTopic(AUDIT_TOPIC, AUDIT_PARTITIONS, replication_factor, config=retention)
        _create_optional(admin, topic, "audit-topic-missing", timeout_s)


def _create_optional(admin: AdminClient, topic: NewTopic, log_event: str, timeout_s: float) -> None:
    try:
        _create(admin, [topic], timeout_s)
    except LogUnavailable as refusal:
        _log.error(log_event, extra={"reason": str(refusal)})


def _create(admin: AdminClient, missing: list[NewTopic], timeout_s: float) -> None:
    outcomes = admin.create_topics(missing, operation_timeout=timeout_s, request_timeout=timeout_s)
    for topic, outcome in outcomes.items():
        _raise_unless_created(topic, outcome)


def _raise_unless_created(topic: str, outcome: Future[None]) -> None:
    try:
        outcome.result()
    except KafkaException as refusal:
        error: KafkaError = refusal.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise LogUnavailable(f"topic {topic} could not be created: {error.str()}") from refusal
