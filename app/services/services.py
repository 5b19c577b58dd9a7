"""What the use cases need, and its lifetime."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from app.config import Settings
from app.domain.processes import ProcessKind
from app.log.browser import LogBrowser
from app.log.deliveries import DeliveryReader
from app.log.errors import LogUnavailable
from app.log.estimate import Estimator
from app.log.event_records import EventRecords
from app.log.history import LogHistory
from app.log.inspection.inspector import LogInspector
from app.log.publisher import EventPublisher
from app.log.replay_requests import ReplayRequestPublisher
from app.log.topics import DELIVERY_OUTCOMES
from app.mail.mailer import Mailer
from app.process import on_own_thread
from app.services.event_index import EventIndexer
from app.services.health import Readiness, ReplayStatistics, ZooKeeperHealth
from app.services.housekeeping import Housekeeping
from app.services.limits import AccountSlots
from app.services.log_sampler import LogSampler
from app.services.metrics import ApiMetrics
from app.services.progress_watch import ProgressWatch
from app.services.receivers import ReceiverLookups
from app.services.verification import Verifier
from app.store import SecretKeyMissing, Store, StoreError
from app.store.event_index import EventIndex
from app.store.log_samples import LogSamples
from app.store.process_heartbeat import ProcessHeartbeat, process_name
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender

_log: Final = logging.getLogger("rewind.api")

LOG_TIMEOUT_S: Final = 5.0
"""How long requests and probes wait for an answer of the log."""

LOOKUPS_PER_ACCOUNT_MAX: Final = 4
"""Concurrent look-ups of deliveries of a developer: half of those that the reader runs."""

ESTIMATES_PER_ACCOUNT_MAX: Final = 2
"""Concurrent estimates of a developer: half of those that the estimator runs."""


@dataclass(frozen=True, slots=True)
class Services:
    """The store, the log and the webhook client, with the state that use cases share."""

    settings: Settings
    store: Store
    receivers: ReceiverLookups
    publisher: EventPublisher
    replay_requests: ReplayRequestPublisher
    history: LogHistory
    outcomes: LogHistory
    """Reads the topic of live delivery outcomes."""

    guard: Guard
    verifier: Verifier
    mailer: Mailer | None
    """Sends mails; None without a mail server."""

    replay_statistics: ReplayStatistics
    readiness: Readiness
    progress_watch: ProgressWatch
    inspector: LogInspector
    log_samples: LogSamples
    browser: LogBrowser
    zookeeper: ZooKeeperHealth
    deliveries: DeliveryReader
    delivery_slots: AccountSlots
    event_records: EventRecords
    event_index: EventIndex
    estimator: Estimator
    estimate_slots: AccountSlots
    metrics: ApiMetrics

    @classmethod
    def of(
        cls,
        settings: Settings,
        store: Store,
        publisher: EventPublisher,
        history: LogHistory,
        guard: Guard,
        sender: WebhookSender,
        metrics: ApiMetrics,
    ) -> Self:
        """The services on open resources, which the caller closes; see also `close`."""
        inspector = LogInspector(settings)
        outcomes = LogHistory(
            settings.bootstrap_servers,
            properties=settings.kafka_properties,
            topic=DELIVERY_OUTCOMES,
        )
        return cls(
            settings=settings,
            store=store,
            receivers=ReceiverLookups(store),
            publisher=publisher,
            replay_requests=ReplayRequestPublisher(
                settings.bootstrap_servers, settings.kafka_properties
            ),
            history=history,
            outcomes=outcomes,
            guard=guard,
            verifier=Verifier(sender, store),
            mailer=Mailer.of(settings),
            replay_statistics=ReplayStatistics(store, settings.origin),
            readiness=Readiness(store, history, settings.origin),
            progress_watch=ProgressWatch(store),
            inspector=inspector,
            log_samples=LogSamples(store.database, settings.origin),
            browser=LogBrowser(settings, inspector.requests),
            zookeeper=ZooKeeperHealth(settings.zookeeper),
            deliveries=DeliveryReader(settings, history, outcomes),
            delivery_slots=AccountSlots(LOOKUPS_PER_ACCOUNT_MAX, "look-ups of deliveries"),
            event_records=EventRecords(settings),
            event_index=EventIndex(store.database, settings.origin),
            estimator=Estimator(settings.bootstrap_servers, properties=settings.kafka_properties),
            estimate_slots=AccountSlots(ESTIMATES_PER_ACCOUNT_MAX, "estimates"),
            metrics=metrics,
        )

    def close(self) -> None:
        """Close what `of` opened."""
        self.browser.close()
        self.replay_requests.close()
        self.deliveries.close()
        self.event_records.close()


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """The services of an API process, closed at the end.

    The database and the log may be down at the start: `Readiness` reports them.

    Raises:
        SecretKeyMissing: no key, or not all keys, of the secrets of webhooks are configured.
    """
    guard = Guard.of(settings)
    history = LogHistory(
        settings.bootstrap_servers, properties=settings.kafka_properties, timeout_s=LOG_TIMEOUT_S
    )
    metrics = ApiMetrics()
    publisher = EventPublisher.of(
        settings, topics_timeout_s=LOG_TIMEOUT_S, on_audit_dropped=metrics.audit_dropped.inc
    )
    limits = SenderLimits(connect_s=settings.connect_timeout_s, total_s=settings.delivery_timeout_s)
    with closing(Store.of(settings)) as store:
        await on_own_thread(partial(_check_secret_keys, store))
        heartbeat = ProcessHeartbeat(
            store, ProcessKind.API, process_name(settings), settings.origin
        )
        housekeeping = Housekeeping(store, settings.replay_retention_ms, metrics)
        sender = WebhookSender(guard, limits, proxy=settings.proxy)
        async with publisher, sender, heartbeat, housekeeping:
            await _create_topics(publisher)
            with closing(
                Services.of(settings, store, publisher, history, guard, sender, metrics)
            ) as services:
                indexer = EventIndexer(
                    store, services.event_index, services.event_records, settings.retention_ms
                )
                sampler = LogSampler(
                    store, services.log_samples, services.inspector, settings.retention_ms
                )
                async with indexer, sampler:
                    yield services


def _check_secret_keys(store: Store) -> None:
    """Return if the secrets of webhooks are readable, or the database is not.

    Raises:
        SecretKeyMissing: they have keys that the store does not have.
    """
    try:
        store.check()
    except SecretKeyMissing:
        raise
    except StoreError as error:
        _log.warning("not ready", extra={"cause": str(error)})


async def _create_topics(publisher: EventPublisher) -> None:
    try:
        await publisher.make_topics()
    except LogUnavailable as error:
        _log.warning("broker unreachable; topics will be created later: %s", error)


def now_ms() -> int:
    """The current time, in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000
