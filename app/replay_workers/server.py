"""The worker process: creates a worker and runs it until a signal."""

import asyncio
import logging
import sys
from contextlib import closing
from typing import Final

from app.config import Settings
from app.delivery.attempt import AttemptSender
from app.domain.options import IN_FLIGHT_MAX
from app.domain.processes import ProcessKind
from app.log.deliveries import DeliveryReader
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.reader_clients import IDLE_MAX, ReaderClients
from app.log.replay_requests import (
    ReplayRequestListener,
    ReplayRequestPublisher,
    RequestHint,
)
from app.log.topics import DELIVERY_OUTCOMES
from app.mail.mailer import Mailer
from app.process import (
    allow_many_connections,
    collect_rarely,
    report_crashes,
    return_freed_memory,
    run_event_loop,
    stop_on_signals,
)
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_publisher import OutcomePublisher
from app.replay_workers.resender import Resender
from app.replay_workers.work_watch import WorkWatch
from app.replay_workers.worker import ReplayWorker
from app.store import Store, StoreError
from app.store.process_heartbeat import ProcessHeartbeat
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from logbroker.json_log import configure_logging
from logbroker.metrics_http import MetricsAccess

_TOPICS_S: Final = 2.0
_LAST_OUTCOMES_S: Final = 1.0
"""A stopping worker must not wait for an unavailable log: supervisors wait ten seconds."""

READY_LINE: Final = "rewind worker ready"

_log: Final = logging.getLogger(__name__)


def run(settings: Settings) -> int:
    """Work until SIGTERM or SIGINT; returns the exit code, 1 if the database is not usable.

    The same signal again ends the process at once.
    """
    configure_logging()
    allow_many_connections()
    report_crashes()
    return_freed_memory()
    collect_rarely()
    try:
        store = Store.of(settings)
    except StoreError as error:
        _log.error("cannot-start", extra={"reason": str(error)})
        return 1
    try:
        store.check()
        run_event_loop(_serve(settings, store))
    except StoreError as error:
        _log.error("cannot-start", extra={"reason": str(error)})
        return 1
    finally:
        store.close()
    return 0


async def _serve(settings: Settings, store: Store) -> None:
    stopping = stop_on_signals()
    guard = Guard.of(settings)
    metrics = WorkerMetrics()
    if settings.worker_metrics_port:
        access = MetricsAccess.of(settings.metrics_token_file, is_open=settings.metrics_open)
        metrics.serve(settings.host, settings.worker_metrics_port, access)
    publisher = EventPublisher.of(
        settings, topics_timeout_s=_TOPICS_S, close_timeout_s=_LAST_OUTCOMES_S
    )
    limits = sender_limits(settings)
    async with publisher, WebhookSender(guard, limits, proxy=settings.proxy) as sender:
        servers, properties = settings.bootstrap_servers, settings.kafka_properties
        history = LogHistory(servers, properties=properties)
        outcomes = LogHistory(servers, properties=properties, topic=DELIVERY_OUTCOMES)
        requests = ReplayRequestPublisher(servers, properties)
        clients = ReaderClients(servers, properties, idle_max=IDLE_MAX)
        dependencies = WorkerDependencies(
            settings,
            store,
            WorkWatch(store, settings.origin),
            history,
            outcomes,
            clients,
            requests,
            guard,
            AttemptSender(sender, metrics.deliveries),
            metrics,
            OutcomePublisher(publisher, metrics),
            Mailer.of(settings),
        )
        worker = ReplayWorker(dependencies)
        _log.info("ready", extra={"worker": worker.name, "jobs": settings.jobs_per_worker})
        # One write, so that a line of another thread cannot split it.
        sys.stderr.write(f"{READY_LINE}\n")
        reader = DeliveryReader(settings, history, outcomes)
        resender = Resender(
            store,
            dependencies.work,
            reader,
            dependencies.attempts,
            dependencies.outcome_publisher,
            settings,
            worker.name,
        )
        loop = asyncio.get_running_loop()

        def wake(hint: RequestHint) -> None:
            if hint.is_resend:
                loop.call_soon_threadsafe(resender.wake)
            else:
                loop.call_soon_threadsafe(worker.hear_request, hint)

        listener = ReplayRequestListener(settings, wake)
        with closing(requests), closing(clients), closing(reader), listener:
            async with _heartbeat(worker, settings, store), asyncio.TaskGroup() as group:
                group.create_task(resender.run(stopping))
                await worker.run(stopping)
    _log.info("stopped", extra={"worker": worker.name})


def _heartbeat(worker: ReplayWorker, settings: Settings, store: Store) -> ProcessHeartbeat:
    return ProcessHeartbeat(
        store,
        ProcessKind.WORKER,
        worker.process_name,
        settings.origin,
        lambda: {
            "jobs": worker.running - worker.waiting,
            "jobsMax": settings.jobs_per_worker,
            "waitingJobs": worker.waiting,
        },
    )


def sender_limits(settings: Settings) -> SenderLimits:
    """Timeouts and connection limits of a worker."""
    return SenderLimits(
        connect_s=settings.connect_timeout_s,
        total_s=settings.delivery_timeout_s,
        # Jobs that send to one host must not wait for each other's responses, and each may use
        # the largest `maxInFlight`.
        connections_per_target=IN_FLIGHT_MAX
        * (settings.jobs_per_worker + settings.waiting_replays_per_worker),
    )
