"""Publishes events, and reports when the log has acknowledged them."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.config import Settings
from app.domain.lateness import Arrival
from app.log.client_errors import CLIENT_ERRORS, CLIENT_LOG
from app.log.errors import PublishFailed
from app.log.event import ACCOUNT_HEADER, NewEvent
from app.log.publisher_audit import AuditOptions, Header, MessageMarks, PublisherAudit
from app.log.topics import ensure_topics
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.audit_format.report import AuditRecord
from logbroker.client.audit_reporter import OnDelivery
from logbroker.client.stamper import SERVER_BYTES_MAX, Stamper

_log: Final = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_IDLE_S: Final = 5.0
"""Time between two polls while nothing is published: the client may have errors to log, and the
audit reports that are due some time after the last event."""

_FULL_QUEUE_S: Final = 0.01
"""Time between two attempts to add to a full queue; thousands of records leave it meanwhile."""

_BURST_EVENTS: Final = 500
"""Events handed to the client before other tasks run, for a millisecond or two."""

_LAST_REPORTS_S: Final = 2.0
"""How long shutdown waits for the last audit reports; a missing report is not a lost event."""


class EventPublisher:
    """Publishes from one event loop; an async context manager.

    Every event is acknowledged by all in-sync replicas, is written once although the client may
    resend it, and goes to the partition that Java's hash of its key selects. Records carry
    the headers `event-id`, `event-type`, `origin` (the data centre) and `server`; those of an event
    for one account also `account-id`.

    With `audit`, records of `events` and `delivery_log` also carry an audit mark, and what was
    acknowledged is reported to `audit`. Events never wait for reports.

    `properties` are the operator's for the client, such as those of TLS and SASL.
    `make_topics` runs before the first publish, until it has succeeded once: a log that creates
    topics by itself would choose their partition count, which cannot be changed later.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        origin: str,
        server: str,
        properties: Mapping[str, str] = {},
        make_topics: Callable[[], None] = lambda: None,
        delivery_timeout_s: float = 30.0,
        close_timeout_s: float | None = None,
        audit: AuditOptions | None = None,
    ) -> None:
        """On exit it waits up to `close_timeout_s` for events in flight, if that is given."""
        self._make_topics: Callable[[], None] | None = make_topics
        self._config = publisher_configuration(bootstrap_servers, properties, delivery_timeout_s)
        self._config["error_cb"] = self._record_error
        self._source = [("origin", origin.encode()), ("server", server.encode())]
        self._close_timeout_s = close_timeout_s or delivery_timeout_s
        self._is_fatal = False
        self._is_closed = threading.Event()
        self._has_work = threading.Event()
        self._producer = Producer(self._config, logger=CLIENT_LOG)
        self._audit = None if audit is None else PublisherAudit(audit, self._produce_report)
        self._poller = threading.Thread(target=self._poll, name="publisher-poll", daemon=True)

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        topics_timeout_s: float,
        close_timeout_s: float | None = None,
        on_audit_dropped: Callable[[int], object] = lambda _: None,
    ) -> Self:
        """Create the publisher of a process; requests about topics take `topics_timeout_s`."""
        return cls(
            settings.bootstrap_servers,
            origin=settings.origin,
            server=settings.server,
            properties=settings.kafka_properties,
            make_topics=partial(
                ensure_topics,
                settings.bootstrap_servers,
                partitions=settings.partitions,
                retention_ms=settings.retention_ms,
                replication_factor=settings.replication_factor,
                properties=settings.kafka_properties,
                timeout_s=topics_timeout_s,
                is_audited=settings.audit,
            ),
            close_timeout_s=close_timeout_s,
            audit=AuditOptions(_stamper(settings), on_audit_dropped) if settings.audit else None,
        )

    async def __aenter__(self) -> Self:
        """Start to process acknowledgements."""
        self._poller.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for events in flight, and stop."""
        await asyncio.to_thread(self._close)

    async def make_topics(self) -> None:
        """Create the topics, unless that has been done.

        Raises:
            LogUnavailable: the log did not answer, or rejected the request.
        """
        if self._make_topics is not None:
            await asyncio.to_thread(self._make_topics)
            self._make_topics = None

    async def publish(self, topic: str, events: Sequence[NewEvent]) -> list[Arrival]:
        """Publish events; return their offsets once the log has acknowledged all of them.

        Events of one key keep their order.

        Raises:
            LogUnavailable: the topics do not exist, and cannot be created.
            PublishFailed: some events were rejected or not acknowledged in time.
        """
        return await (await self.begin(topic, events)).all_settled()

    async def begin(self, topic: str, events: Sequence[NewEvent]) -> "Publication":
        """Hand events to the client, which sends them; return a handle for the outcome.

        Events of one key keep their order over calls too, if each call waits for the previous one.

        Raises:
            LogUnavailable: the topics do not exist, and cannot be created.
        """
        await self.make_topics()
        marks = self._mark(topic, events)
        publication = Publication(asyncio.get_running_loop(), events, marks)
        handed = 0
        try:
            while handed < len(events):
                if not self._hand_over(topic, handed, publication):
                    await asyncio.sleep(_FULL_QUEUE_S)
                    continue
                handed += 1
                if handed % _BURST_EVENTS == 0:
                    await asyncio.sleep(0)
        finally:
            # A cancelled caller leaves events that were never sent.
            publication.abandon(handed)
        return publication

    async def report_to_audit(self, records: Sequence[AuditRecord]) -> None:
        """Return once `audit` has these records, or an attempt failed: then they are retried."""
        if self._audit is not None and records:
            await asyncio.wrap_future(self._audit.reporter.add(records))

    @property
    def pending_audit_reports(self) -> int:
        """Records for `audit` that the log does not have yet."""
        return 0 if self._audit is None else self._audit.reporter.pending

    def _mark(self, topic: str, events: Sequence[NewEvent]) -> MessageMarks | None:
        if self._audit is None:
            return None
        return self._audit.mark(topic, [event.time_ms for event in events])

    def _hand_over(self, topic: str, index: int, publication: "Publication") -> bool:
        """Hand an event to the client, which may reject it; return False if its queue is full."""
        on_delivery = partial(publication.record_outcome, index)
        try:
            self._produce(topic, publication.events[index], publication.headers(index), on_delivery)
        except BufferError:
            return False
        except KafkaException as refusal:
            on_delivery(refusal.args[0], None)
        return True

    def _produce(
        self, topic: str, event: NewEvent, marks: Sequence[Header], on_delivery: OnDelivery
    ) -> None:
        self._producer.produce(
            topic,
            event.body,
            None if event.webhook_id is None else event.webhook_id.encode(),
            timestamp=event.time_ms,
            headers=[
                ("event-id", event.event_id.encode()),
                ("event-type", event.event_type.encode()),
                *_account_header(event),
                *self._source,
                *marks,
            ],
            on_delivery=on_delivery,
        )
        self._wake_poller()

    def _produce_report(self, record: AuditRecord, on_delivery: OnDelivery) -> None:
        self._producer.produce(AUDIT_TOPIC, record.value, record.key, on_delivery=on_delivery)
        self._wake_poller()

    def _wake_poller(self) -> None:
        if not self._has_work.is_set():  # `set` takes ten times as long
            self._has_work.set()

    def _poll(self) -> None:
        served = 0
        while not self._is_closed.is_set():
            self._has_work.clear()
            # After an acknowledgement the next one is waited for in the client, which wakes this
            # thread once for each; `_has_work` would wake it for each event as well.
            wait_s = _POLL_S if served or len(self._producer) else 0
            served = self._producer.poll(wait_s)
            if served == 0 and len(self._producer) == 0:
                self._has_work.wait(_IDLE_S)
            if self._is_fatal:
                self._replace_producer()
            if self._audit is not None:
                self._audit.report_due(time.monotonic())

    def _record_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._is_fatal = True
            _log.error("log client: %s", error.str())
        else:
            CLIENT_ERRORS.report_error(error)

    def _replace_producer(self) -> None:
        """Create a new producer: an idempotent one with a broken sequence never sends again."""
        broken, self._producer = self._producer, Producer(self._config, logger=CLIENT_LOG)
        self._is_fatal = False
        broken.purge()
        broken.flush(_POLL_S)

    def _close(self) -> None:
        self._flush_events()
        if self._audit is not None:
            if self._audit.report_remaining():
                self._producer.flush(_LAST_REPORTS_S)
            self._audit.reporter.close()
        self._is_closed.set()
        self._has_work.set()
        self._poller.join()

    def _flush_events(self) -> None:
        """Wait for events only: the topic `audit` may reject everything."""
        end_s = time.monotonic() + self._close_timeout_s
        while (left_s := end_s - time.monotonic()) > 0:
            reports = 0 if self._audit is None else self._audit.reporter.in_flight
            if len(self._producer) <= reports:
                return
            self._producer.flush(min(_POLL_S, left_s))


def _stamper(settings: Settings) -> Stamper:
    # A mark limits the length of a name, and needs printable characters.
    printable = "".join(each if each.isprintable() else "?" for each in settings.server)
    server = printable.encode()[:SERVER_BYTES_MAX].decode("utf-8", "ignore")
    return Stamper(server, window_ms=1_000 * settings.audit_window_s)


class Publication:
    """The outcome of one call; acknowledgements arrive on the polling thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        events: Sequence[NewEvent],
        marks: MessageMarks | None,
    ) -> None:
        self._loop = loop
        self.events = events
        self._marks = marks
        self._arrivals: list[Arrival] = []
        self._counter = count(1)
        self._failures: dict[int, str] = {}
        self._unacknowledged: set[int] = set()
        self._done = asyncio.Event()

    def headers(self, index: int) -> Sequence[Header]:
        """Return the headers that mark the event at `index`."""
        return () if self._marks is None else self._marks.headers(index)

    def record_outcome(self, index: int, error: KafkaError | None, message: Message | None) -> None:
        """Record the outcome of the event at `index`; thread-safe."""
        if error is not None:
            self._unacknowledged.add(index)
            self._failures[index] = error.str()
        elif message is not None and (arrival := _arrival(self.events[index], message)):
            self._arrivals.append(arrival)
        else:
            # The event was sent twice, and the broker no longer knows the offset of the first.
            self._failures[index] = "acknowledged without an offset"
        self._count_settled()

    def abandon(self, start: int) -> None:
        """Record that the events from `start` on were not sent."""
        for index in range(start, len(self.events)):
            self._unacknowledged.add(index)
            self._failures[index] = "not sent"
            self._count_settled()

    def _count_settled(self) -> None:
        # Counting is atomic, so exactly one thread is the last.
        if next(self._counter) == len(self.events):
            if self._marks is not None:
                self._marks.record_sent(self._unacknowledged)
            self._loop.call_soon_threadsafe(self._done.set)

    async def all_settled(self) -> list[Arrival]:
        """Wait for all outcomes; return the arrivals, in any order.

        Raises:
            PublishFailed: see `EventPublisher.publish`.
        """
        if self.events:
            await self._done.wait()
        if self._failures:
            event_ids = tuple(self.events[index].event_id for index in sorted(self._failures))
            reason = next(iter(self._failures.values()))
            raise PublishFailed(event_ids, len(self.events), reason)
        return self._arrivals


def _arrival(event: NewEvent, message: Message) -> Arrival | None:
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        return None
    return Arrival(event.time_ms, partition, offset)


def _account_header(event: NewEvent) -> Sequence[Header]:
    return () if event.account_id is None else ((ACCOUNT_HEADER, event.account_id.encode()),)


def publisher_configuration(
    bootstrap_servers: str, properties: Mapping[str, str], delivery_timeout_s: float = 30.0
) -> dict[str, Any]:
    """Return the client's configuration; `properties` override the choices here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "rewind-publisher",
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "snappy",
        "partitioner": "murmur2_random",
        # A single event is sent at once. Others gather while five requests are in flight.
        "linger.ms": 0,
        "delivery.timeout.ms": round(delivery_timeout_s * 1_000),
        **properties,
    }
