"""The live process: opens its doors, runs both stages until a signal, and leaves its groups."""

import asyncio
import logging
import sys
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from app.config import Settings
from app.domain.processes import Details, ProcessKind
from app.domain.tallies import TallyCounter
from app.live import deliverer, matcher
from app.live.deliverer import Deliverer
from app.live.lane import Route
from app.live.late_events import LateEvents
from app.live.matcher import Matcher
from app.live.metrics import LiveMetrics
from app.live.mirrored import MirroredRecords
from app.live.outcome_writer import OutcomeWriter
from app.live.received_reports import ReceivedReports
from app.live.routing import RoutingTable
from app.live.standing import Standing
from app.live.tally_writer import TallyWriter
from app.log.errors import LogUnavailable
from app.log.group_reader import GroupReader, GroupStage
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, EVENTS
from app.process import allow_many_connections, collect_rarely, stop_on_signals
from app.store import Store, StoreError, StoreUnavailable
from app.store.process_heartbeat import ProcessHeartbeat, process_name
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from logbroker.json_log import configure_logging

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

READY_LINE: Final = "rewind live ready"

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_LOG_TIMEOUT_S: Final = 5.0
_LEAVING_S: Final = 15.0
"""What the last requests, the last outcomes and the last commit may take together."""

_LAST_RECORDS_S: Final = 1.0
"""What the log has not acknowledged at the end is matched or delivered again."""

_JOINED_S: Final = 15.0
"""Of more processes than there are partitions some get none: they are ready all the same."""

_LANES_PER_TARGET: Final = 32
"""Webhooks with receivers on one host that do not wait for each other's answers."""


class _Stopped(Exception):
    """The process is to end before it has begun."""


def run(settings: Settings) -> int:
    """Deliver until SIGTERM or SIGINT; the exit code: 1 when the database or a port is not fit.

    The database and the log may come up later than this process, which waits for both.
    """
    configure_logging()
    allow_many_connections()
    collect_rarely()
    store = Store.open(settings.database)
    try:
        asyncio.run(_serve(settings, store))
    except (StoreError, OSError) as error:
        _log.error("refused", extra={"reason": str(error)})
        return 1
    finally:
        store.close()
    return 0


async def _serve(settings: Settings, store: Store) -> None:
    stopping = stop_on_signals()
    metrics = LiveMetrics()
    if settings.live_metrics_port:
        metrics.serve(settings.host, settings.live_metrics_port)
    async with (
        WebhookSender(Guard.of(settings), _limits(settings)) as sender,
        EventPublisher.of(
            settings,
            topics_timeout_s=_LOG_TIMEOUT_S,
            close_timeout_s=_LAST_RECORDS_S,
            on_audit_dropped=metrics.audit_dropped.inc,
        ) as publisher,
    ):
        table = RoutingTable(store)
        live = LivePath(settings, store, table, sender, publisher, metrics)
        name = process_name(settings)
        heartbeat = ProcessHeartbeat(store, ProcessKind.LIVE, name, settings.origin, live.details)
        async with heartbeat:
            with suppress(_Stopped):
                await _wait_for_doors(store, table, publisher, stopping)
                await live.run(stopping)
    _log.info("stopped")


async def _wait_for_doors(
    store: Store, table: RoutingTable, publisher: EventPublisher, stopping: asyncio.Event
) -> None:
    """Return once the database has given the routing table, and the log has the topics.

    Raises:
        StoreError: the database answers, and is not fit.
        _Stopped: the process is to end.
    """
    while not stopping.is_set():
        try:
            await asyncio.to_thread(store.check)
            await table.refresh()
            await publisher.make_topics()
        except (StoreUnavailable, LogUnavailable) as error:
            _log.warning("waiting", extra={"reason": str(error)})
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _RETRY_S)
        else:
            return
    raise _Stopped


class LivePath:
    """Both stages with all that they share. Runs once."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        table: RoutingTable,
        sender: WebhookSender,
        publisher: EventPublisher,
        metrics: LiveMetrics,
    ) -> None:
        self._settings = settings
        self._table = table
        self._sender = sender
        self._publisher = publisher
        self._metrics = metrics
        self._couriers: set[asyncio.Task[None]] = set()
        self._standing = Standing(store, table, metrics)
        self._outcomes = OutcomeWriter(publisher)
        late = LateEvents(store, settings)
        self._mirrored = MirroredRecords(late, metrics)
        received, owed = (
            ReceivedReports.of(settings, publisher, topic, group)
            for topic, group in ((EVENTS, matcher.GROUP), (DELIVERY_LOG, deliverer.GROUP))
        )
        tallies = TallyCounter(settings.history_ms, metrics.untallied.inc)
        self._tally_writer = TallyWriter(store, tallies, settings.origin, settings.retention_ms)
        self._deliverer = Deliverer(
            self._outcomes, self._mirrored, tallies, metrics, settings.origin, reports=owed
        )
        self._matcher = Matcher(
            table,
            publisher,
            late,
            metrics,
            settings.origin,
            decoder=_decoder(settings),
            reports=received,
        )
        self._matching = self._reader(EVENTS, matcher.GROUP, self._matcher)
        self._delivering = self._reader(DELIVERY_LOG, deliverer.GROUP, self._deliverer)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping`; returns when everything that was let go is committed.

        Raises in a group:
            Exception: one of its parts cannot go on.
        """
        self._watch()
        readers = (self._matching, self._delivering)
        async with asyncio.TaskGroup() as group:
            route = self._route(group)
            parts = [
                group.create_task(part)
                for part in (
                    self._table.run(),
                    self._standing.run(),
                    self._outcomes.run(),
                    self._tally_writer.run(),
                    self._mirrored.run(self._deliverer.clear_of_mirrored),
                    self._matcher.run(self._matching),
                    self._deliverer.run(self._delivering, route),
                    self._say_when_ready(),
                )
            ]
            reading = [group.create_task(reader.run()) for reader in readers]
            await stopping.wait()
            route.is_stopping = True
            for reader in readers:
                reader.stop()
            _, late = await asyncio.wait(reading, timeout=_LEAVING_S)
            if late:
                # The log is away: the groups will find out by themselves.
                _log.warning("groups-not-left")
            await self._tally_writer.finish()
            # Also requests that got no answer all the while.
            for task in (*parts, *self._couriers, *late):
                task.cancel()

    def details(self) -> Details:
        """What there is to tell of this process to who watches it."""
        joined = self._matching.joined.is_set() and self._delivering.joined.is_set()
        return {
            "webhooks": self._table.webhook_count,
            "waitingEvents": self._deliverer.waiting,
            "ready": int(joined),
        }

    def _reader(self, topic: str, name: str, stage: GroupStage) -> GroupReader:
        settings = self._settings
        return GroupReader(
            settings.bootstrap_servers,
            topic,
            name,
            stage,
            properties=settings.kafka_properties,
        )

    def _route(self, group: asyncio.TaskGroup) -> Route:
        settings = self._settings
        return Route(
            table=self._table,
            sender=self._sender,
            standing=self._standing,
            metrics=self._metrics,
            desk=self._deliverer,
            spawn=lambda carrying: self._spawn(group, carrying),
            delays_s=settings.attempt_delays_s,
            in_flight_max=settings.live_in_flight,
            queue_max=settings.live_queue_max,
            disable_after_failures=settings.disable_after_failures,
            disable_after_s=settings.disable_after_s,
        )

    def _spawn(self, group: asyncio.TaskGroup, carrying: Coroutine[Any, Any, None]) -> None:
        courier = group.create_task(carrying)
        self._couriers.add(courier)
        courier.add_done_callback(self._couriers.discard)

    async def _say_when_ready(self) -> None:
        """Say that events which are published from now on are delivered live."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_JOINED_S):
                await self._matching.joined.wait()
                await self._delivering.joined.wait()
        _log.info("ready", extra={"webhooks": self._table.webhook_count})
        # In one piece: a line of another thread must not part it from its end.
        sys.stderr.write(f"{READY_LINE}\n")

    def _watch(self) -> None:
        metrics, table = self._metrics, self._table
        metrics.watch(
            "rewind_live_matching_events",
            "Records of `events` that are read and not logged for all whom they are owed to.",
            lambda: self._matcher.under_way,
        )
        metrics.watch(
            "rewind_live_waiting_events",
            "Events that wait for an attempt or its answer.",
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
            "For how long the database has not refreshed the routing table.",
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
            "1 once both consumer groups have given this process a share, else 0.",
            lambda: all(each.joined.is_set() for each in readers),
        )
        metrics.watch_lags({each.group: partial(dict, each.lags) for each in readers})


def _decoder(settings: Settings) -> "AvroDecoder | None":
    if not settings.schema_registry:
        return None
    # To load them takes a third of the time in which a process starts, and few logs hold Avro.
    from logbroker.schemas.decoder import AvroDecoder
    from logbroker.schemas.lookup import SchemaLookup

    return AvroDecoder(SchemaLookup(settings.schema_registry))


def _limits(settings: Settings) -> SenderLimits:
    return SenderLimits(
        connect_s=settings.connect_timeout_s,
        total_s=settings.delivery_timeout_s,
        connections_per_target=settings.live_in_flight * _LANES_PER_TARGET,
    )
