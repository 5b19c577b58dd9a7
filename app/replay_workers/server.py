"""The worker process: puts a worker together, runs it until a signal, and says how it ended."""

import asyncio
import logging
import logging.config
import sys
from typing import Final

from app import json_log
from app.config import Settings
from app.domain.options import IN_FLIGHT_MAX
from app.domain.processes import ProcessKind
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES
from app.process import allow_many_connections, collect_rarely, stop_on_signals
from app.replay_workers.equipment import Equipment
from app.replay_workers.metrics import WorkerMetrics
from app.replay_workers.outcome_book import OutcomeBook
from app.replay_workers.worker import ReplayWorker
from app.store import Store, StoreError
from app.store.process_heartbeat import ProcessHeartbeat
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender

_TOPICS_S: Final = 2.0
_LAST_OUTCOMES_S: Final = 1.0
"""A worker that stops while the log is away must not wait for it: supervisors wait ten seconds."""

READY_LINE: Final = "rewind worker ready"

_log: Final = logging.getLogger(__name__)


def run(settings: Settings) -> int:
    """Work until SIGTERM or SIGINT; the exit code: 1 when the database is not fit.

    The same signal again ends the process at once.
    """
    logging.config.dictConfig(json_log.CONFIG)
    allow_many_connections()
    collect_rarely()
    store = Store.open(settings.database)
    try:
        store.check()
        asyncio.run(_serve(settings, store))
    except StoreError as error:
        _log.error("refused", extra={"reason": str(error)})
        return 1
    finally:
        store.close()
    return 0


async def _serve(settings: Settings, store: Store) -> None:
    stopping = stop_on_signals()
    guard = Guard.of(settings)
    metrics = WorkerMetrics()
    if settings.worker_metrics_port:
        metrics.serve(settings.host, settings.worker_metrics_port)
    publisher = EventPublisher.of(
        settings, topics_timeout_s=_TOPICS_S, close_timeout_s=_LAST_OUTCOMES_S
    )
    async with publisher, WebhookSender(guard, sender_limits(settings)) as sender:
        servers, properties = settings.bootstrap_servers, settings.kafka_properties
        history = LogHistory(servers, properties=properties)
        outcomes = LogHistory(servers, properties=properties, topic=DELIVERY_OUTCOMES)
        book = OutcomeBook(publisher, metrics)
        equipment = Equipment(settings, store, history, outcomes, guard, sender, metrics, book)
        worker = ReplayWorker(equipment)
        _log.info("ready", extra={"worker": worker.name, "jobs": settings.jobs_per_worker})
        # In one piece: a line of another thread must not part it from its end.
        sys.stderr.write(f"{READY_LINE}\n")
        async with _heartbeat(worker, settings, store):
            await worker.run(stopping)
    _log.info("stopped", extra={"worker": worker.name})


def _heartbeat(worker: ReplayWorker, settings: Settings, store: Store) -> ProcessHeartbeat:
    # By the name that its replays bear.
    return ProcessHeartbeat(
        store,
        ProcessKind.WORKER,
        worker.name,
        settings.origin,
        lambda: {"jobs": worker.running, "jobsMax": settings.jobs_per_worker},
    )


def sender_limits(settings: Settings) -> SenderLimits:
    """What a receiver may cost a worker."""
    return SenderLimits(
        connect_s=settings.connect_timeout_s,
        total_s=settings.delivery_timeout_s,
        # Jobs that send to one host must not wait for each other's answers, and each may have as
        # many requests in flight as any replay may ask for.
        connections_per_target=IN_FLIGHT_MAX * settings.jobs_per_worker,
    )
