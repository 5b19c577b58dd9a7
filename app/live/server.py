"""The live process: connects, runs both stages until a signal, and leaves its groups."""

import asyncio
import logging
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from app.config import Settings
from app.delivery.attempt import AttemptSender
from app.domain.handovers import HANDS_OVER
from app.domain.processes import STALLED_PARTITIONS, Details, ProcessKind
from app.domain.retry import FixedDelays, RetryPolicy
from app.domain.tallies import TallyCounter
from app.live import deliverer, matcher
from app.live.backlog_writer import BacklogWriter
from app.live.deliverer import Deliverer
from app.live.delivery_start import wait_until_deliverers_began
from app.live.handovers import Handovers
from app.live.late_events import LateEvents
from app.live.matcher import Matcher
from app.live.metrics import LiveMetrics
from app.live.mirrored import MirroredRecords
from app.live.outcome_writer import OutcomeWriter
from app.live.queue_context import QueueContext
from app.live.received_reports import ReceivedReports
from app.live.recoveries import Recoveries
from app.live.routing import RoutingTable
from app.live.scheduled_retries import ScheduledRetries
from app.live.tally_writer import TallyWriter
from app.live.webhook_status import WebhookStatusWriter
from app.log.errors import LogUnavailable
from app.log.group_reader import GroupReader, GroupStage
from app.log.publisher import EventPublisher
from app.log.replay_requests import ReplayRequestPublisher
from app.log.topics import DELIVERY_LOG, EVENTS
from app.process import (
    allow_many_connections,
    collect_rarely,
    report_crashes,
    return_freed_memory,
    run_event_loop,
    stop_on_signals,
)
from app.store import Store, StoreError, StoreUnavailable
from app.store.process_heartbeat import ProcessHeartbeat, process_name
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from logbroker.json_log import configure_logging
from logbroker.metrics_http import MetricsAccess

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

READY_LINE: Final = "rewind live ready"

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_LOG_TIMEOUT_S: Final = 5.0
_LEAVING_S: Final = 15.0
"""How long the last requests, outcomes and commits may take together."""

_LAST_RECORDS_S: Final = 1.0
"""Records that the log has not acknowledged at the end are matched or delivered again."""

_JOINED_S: Final = 15.0
"""If there are more processes than partitions, some get none and are ready all the same."""

_QUEUES_PER_TARGET: Final = 32
"""Webhooks on one host that use all their connections at once; beyond these, each has one of its
own: see `request_slots`."""


class _StoppedAtStart(Exception):
    """The process was stopped before it was ready."""


def run(settings: Settings) -> int:
    """Deliver until SIGTERM or SIGINT; returns the exit code, 1 if database or port are not usable.

    It waits for a database and a log that start later.
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
        run_event_loop(_serve(settings, store))
    except (StoreError, OSError) as error:
        _log.error("cannot-start", extra={"reason": str(error)})
        return 1
    finally:
        store.close()
    return 0


async def _serve(settings: Settings, store: Store) -> None:
    stopping = stop_on_signals()
    metrics = LiveMetrics()
    if settings.live_metrics_port:
        access = MetricsAccess.of(settings.metrics_token_file, is_open=settings.metrics_open)
        metrics.serve(settings.host, settings.live_metrics_port, access)
    async with (
        WebhookSender(Guard.of(settings), _limits(settings), proxy=settings.proxy) as sender,
        EventPublisher.of(
            settings,
            topics_timeout_s=_LOG_TIMEOUT_S,
            close_timeout_s=_LAST_RECORDS_S,
            on_audit_dropped=metrics.audit_dropped.inc,
        ) as publisher,
    ):
        table = RoutingTable(store)
        handovers = Handovers(store, settings.origin)
        live = LivePath(settings, store, table, handovers, sender, publisher, metrics)
        name = process_name(settings)
        heartbeat = ProcessHeartbeat(store, ProcessKind.LIVE, name, settings.origin, live.details)
        async with heartbeat:
            with suppress(_StoppedAtStart):
                await _wait_for_dependencies(store, table, handovers, publisher, stopping)
                await live.run(stopping)
    _log.info("stopped")


async def _wait_for_dependencies(
    store: Store,
    table: RoutingTable,
    handovers: Handovers,
    publisher: EventPublisher,
    stopping: asyncio.Event,
) -> None:
    """Return once routing table and handovers are loaded and the log has the topics.

    Raises:
        StoreError: the database responds but is not usable.
        _StoppedAtStart: `stopping` is set.
    """
    while not stopping.is_set():
        try:
            await asyncio.to_thread(store.check)
            await table.refresh()
            await handovers.refresh()
            await publisher.make_topics()
        except (StoreUnavailable, LogUnavailable) as error:
            _log.warning("waiting", extra={"reason": str(error)})
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RETRY_S)
        else:
            return
    raise _StoppedAtStart


class LivePath:
    """Both stages and what they share. Runs once."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        table: RoutingTable,
        handovers: Handovers,
        sender: WebhookSender,
        publisher: EventPublisher,
        metrics: LiveMetrics,
    ) -> None:
        self._settings = settings
        self._table = table
        self._store = store
        self._handovers = handovers
        self._sender = sender
        self._publisher = publisher
        self._metrics = metrics
        self._status_writer = WebhookStatusWriter(store, table, metrics)
        self._outcomes = OutcomeWriter(publisher, metrics.attempts_dropped.inc)
        late = LateEvents(store, settings)
        self._mirrored = MirroredRecords(late, metrics)
        matcher_reports, deliverer_reports = (
            ReceivedReports.of(settings, publisher, topic, group)
            for topic, group in ((EVENTS, matcher.GROUP), (DELIVERY_LOG, deliverer.GROUP))
        )
        tallies = TallyCounter(settings.history_ms, metrics.statistics_dropped.inc)
        self._tally_writer = TallyWriter(store, tallies, settings.origin, settings.retention_ms)
        self._deliverer = Deliverer(
            self._outcomes,
            self._mirrored,
            tallies,
            metrics,
            settings.origin,
            handovers,
            reports=deliverer_reports,
        )
        self._matcher = Matcher(
            table,
            publisher,
            late,
            metrics,
            settings.origin,
            decoder=_decoder(settings),
            reports=matcher_reports,
        )
        policy = RetryPolicy(base_s=settings.retry_base_s, cap_s=settings.retry_cap_s)
        self._replay_requests = ReplayRequestPublisher(
            settings.bootstrap_servers, settings.kafka_properties
        )
        wake_workers = self._replay_requests.publish
        self._recoveries = Recoveries(store, settings.origin, policy, wake_workers)
        self._retries = ScheduledRetries(store, settings.origin, settings.retry_schedule, metrics)
        self._matching = self._reader(EVENTS, matcher.GROUP, self._matcher)
        self._delivering = self._reader(DELIVERY_LOG, deliverer.GROUP, self._deliverer)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; return when the last positions are committed.

        Raises in a group:
            Exception: a part of it failed.
        """
        self._watch()
        async with asyncio.TaskGroup() as group:
            context = self._queue_context(group)
            parts = [
                group.create_task(part)
                for part in (
                    self._table.run(),
                    self._status_writer.run(),
                    self._outcomes.run(),
                    self._recoveries.run(),
                    self._recoveries.start_replays(),
                    self._retries.run(),
                    self._tally_writer.run(),
                    self._handovers.run(self._deliverer.hand_over),
                    self._mirrored.run(self._deliverer.resume_after_mirrored),
                    self._matcher.run(self._matching),
                    self._deliverer.run(self._delivering, context),
                    self._report_ready(),
                    BacklogWriter(self._store, self._settings.origin, context.retrying).run(),
                )
            ]
            reading = [
                group.create_task(self._read_events(stopping)),
                group.create_task(self._delivering.run()),
            ]
            await stopping.wait()
            context.is_stopping = True
            self._matching.stop()
            self._delivering.stop()
            _, late = await asyncio.wait(reading, timeout=_LEAVING_S)
            if late:
                # The log is unavailable; the groups expire the members.
                _log.warning("groups-not-left")
            await self._tally_writer.finish()
            self._deliverer.cancel_senders()
            for task in (*parts, *late):
                task.cancel()
        await asyncio.to_thread(self._replay_requests.close)

    async def _read_events(self, stopping: asyncio.Event) -> None:
        """Match events once everything that they lead to will be delivered."""
        await wait_until_deliverers_began(self._settings, stopping)
        if not stopping.is_set():
            await self._matching.run()

    def details(self) -> Details:
        """What the process registry shows of this process."""
        joined = self._matching.joined.is_set() and self._delivering.joined.is_set()
        return {
            "webhooks": self._table.webhook_count,
            "waitingEvents": self._deliverer.waiting,
            "ready": int(joined),
            HANDS_OVER: 1,
            **({STALLED_PARTITIONS: stalled} if (stalled := self._stalled_count()) else {}),
        }

    def problems(self) -> list[str]:
        """Why the process is not ready: it has no partitions yet, or reads nothing from some."""
        readers = (self._matching, self._delivering)
        found = [
            f"waiting for partitions of {each.topic}"
            for each in readers
            if not each.joined.is_set()
        ]
        return found + [
            f"{each.topic}-{partition} has made no progress for a minute"
            for each in readers
            for partition in sorted(each.stalled)
        ]

    def _stalled_count(self) -> int:
        return len(self._matching.stalled) + len(self._delivering.stalled)

    def _reader(self, topic: str, name: str, stage: GroupStage) -> GroupReader:
        settings = self._settings
        return GroupReader(
            settings.bootstrap_servers,
            topic,
            name,
            stage,
            properties=settings.kafka_properties,
            on_unreadable=self._metrics.log.record_unreadable,
        )

    def _queue_context(self, group: asyncio.TaskGroup) -> QueueContext:
        settings = self._settings
        return QueueContext(
            table=self._table,
            attempts=AttemptSender(self._sender, self._metrics.attempts),
            status_writer=self._status_writer,
            metrics=self._metrics,
            recorder=self._deliverer,
            handovers=self._handovers,
            recoveries=self._recoveries,
            retries=self._retries,
            start_task=group.create_task,
            delays=FixedDelays(settings.attempt_delays_s),
            in_flight_max=settings.live_in_flight,
            queue_max=settings.live_queue_max,
            disable_after_failures=settings.disable_after_failures,
            disable_after_s=settings.disable_after_s,
        )

    async def _report_ready(self) -> None:
        """Report that events published from now on are delivered live."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_JOINED_S):
                await self._matching.joined.wait()
                await self._delivering.joined.wait()
        _log.info("ready", extra={"webhooks": self._table.webhook_count})
        # One write, so that a line of another thread cannot split it.
        sys.stderr.write(f"{READY_LINE}\n")

    def _watch(self) -> None:
        metrics, table = self._metrics, self._table
        metrics.problems = self.problems
        metrics.watch(
            "rewind_live_matching_events",
            "Records of `events` that are read and whose deliveries are not all logged.",
            lambda: self._matcher.pending,
        )
        metrics.watch(
            "rewind_live_waiting_events",
            "Deliveries that wait for an attempt or its response.",
            lambda: self._deliverer.waiting,
        )
        metrics.watch(
            "rewind_live_unsettled_records",
            "Records of `delivery_log` that are read and not settled.",
            lambda: self._deliverer.unsettled,
        )
        metrics.watch(
            "rewind_live_webhooks", "Webhooks in the routing table.", lambda: table.webhook_count
        )
        metrics.watch("rewind_live_rules", "Rules in the table.", lambda: table.rule_count)
        metrics.watch(
            "rewind_live_routing_age_seconds",
            "Seconds since the last refresh of the routing table.",
            lambda: table.age_s,
        )
        metrics.watch(
            "rewind_live_audit_pending_reports",
            "Audit reports that the log does not have yet.",
            lambda: self._publisher.pending_audit_reports,
        )
        readers = (self._matching, self._delivering)
        metrics.watch(
            "rewind_live_joined",
            "1 once both consumer groups have assigned partitions to this process, else 0.",
            lambda: all(each.joined.is_set() for each in readers),
        )
        metrics.watch_lags({each.group: partial(dict, each.lags) for each in readers})
        metrics.log.watch_stalled({each.topic: partial(_stalled, each) for each in readers})


def _stalled(reader: GroupReader) -> int:
    return len(reader.stalled)


def _decoder(settings: Settings) -> "AvroDecoder | None":
    if not settings.schema_registry:
        return None
    # Loading them takes a third of the start-up time, and few logs hold Avro.
    from logbroker.schemas.decoder import AvroDecoder
    from logbroker.schemas.lookup import SchemaLookup

    return AvroDecoder(SchemaLookup(settings.schema_registry))


def _limits(settings: Settings) -> SenderLimits:
    return SenderLimits(
        connect_s=settings.connect_timeout_s,
        total_s=settings.delivery_timeout_s,
        connections_per_target=settings.live_in_flight * _QUEUES_PER_TARGET,
    )
