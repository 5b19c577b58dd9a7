"""Publishes events and tells when the log holds them for good."""

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
from app.log.audit_outbox import Settle
from app.log.audit_trail import AuditTrail, Header, Marks
from app.log.complaints import CLIENT_LOG, COMPLAINTS
from app.log.errors import PublishFailed
from app.log.event import OwedEvent
from app.log.topics import ensure_topics
from logbroker.client.audit_event import AuditRecord
from logbroker.client.audit_mark import AUDIT_TOPIC
from logbroker.client.stamper import SERVER_BYTES_MAX, Stamper

_log: Final = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_FULL_QUEUE_S: Final = 0.01
"""How long to wait before another look at a full queue; in that time thousands leave it."""

_TURN_EVENTS: Final = 500
"""Events handed over before other tasks get a turn, a millisecond or two."""

_LAST_AUDIT_S: Final = 2.0
"""How long the end waits for the last monitoring events; what is not told is no loss."""


class EventPublisher:
    """Publishes from one event loop; an async context manager.

    Every event is acknowledged by all replicas in sync, is written once although the client may
    send it again, and lands in the partition that Java's hash of its key names. Records carry
    the headers `event-id`, `event-type`, `origin` (the data centre) and `server`.

    With a `stamper`, those of `events` and `delivery_log` are marked for the audit as well, and
    what was acknowledged of each window is published to `audit`. Whatever becomes of that, events
    do not wait for it; `audit_lost` is called with how many records of it were given up.

    `properties` are the operator's for the client: TLS, SASL and the like.
    `make_topics` runs before the first publish, until it has succeeded once: a log that makes
    topics by itself would choose their partition count, and that is for good.
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
        stamper: Stamper | None = None,
        audit_lost: Callable[[int], object] = lambda _: None,
    ) -> None:
        """At its end it waits for what is under way, for `close_timeout_s` if that is given."""
        self._make_topics: Callable[[], None] | None = make_topics
        self._config = publisher_configuration(bootstrap_servers, properties, delivery_timeout_s)
        self._config["error_cb"] = self._note_error
        self._source = [("origin", origin.encode()), ("server", server.encode())]
        self._close_timeout_s = close_timeout_s or delivery_timeout_s
        self._is_fatal = False
        self._is_closed = threading.Event()
        self._producer = Producer(self._config, logger=CLIENT_LOG)
        self._trail = (
            None if stamper is None else AuditTrail(stamper, self._produce_audit, audit_lost)
        )
        self._poller = threading.Thread(target=self._poll, name="publisher-poll", daemon=True)

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        topics_timeout_s: float,
        close_timeout_s: float | None = None,
        audit_lost: Callable[[int], object] = lambda _: None,
    ) -> Self:
        """The publisher of a process; the log has `topics_timeout_s` to answer about its topics."""
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
            stamper=_stamper(settings) if settings.audit else None,
            audit_lost=audit_lost,
        )

    async def __aenter__(self) -> Self:
        """Start to serve acknowledgements."""
        self._poller.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for what is under way, and stop."""
        await asyncio.to_thread(self._close)

    async def make_topics(self) -> None:
        """Make the topics now; nothing to do once they have been made.

        Raises:
            LogUnavailable: the log did not answer, or would not make them.
        """
        if self._make_topics is not None:
            await asyncio.to_thread(self._make_topics)
            self._make_topics = None

    async def publish(self, topic: str, events: Sequence[OwedEvent]) -> list[Arrival]:
        """Where each event lies, once the log has acknowledged all of them.

        Events of one key keep their order.

        Raises:
            LogUnavailable: the topics are not there, and cannot be made.
            PublishFailed: some were not acknowledged in time, or refused; it names them.
        """
        return await (await self.begin(topic, events)).all_settled()

    async def begin(self, topic: str, events: Sequence[OwedEvent]) -> "Publication":
        """Hand events to the client, which sends them; what comes of them can be waited for.

        Events of one key keep their order over calls too, if each call waits for the one before.

        Raises:
            LogUnavailable: the topics are not there, and cannot be made.
        """
        await self.make_topics()
        marks = self._mark(topic, events)
        publication = Publication(asyncio.get_running_loop(), events, marks)
        handed = 0
        try:
            while handed < len(events):
                await self._hand_over(topic, events[handed], handed, publication)
                handed += 1
                if handed % _TURN_EVENTS == 0:
                    await asyncio.sleep(0)
        finally:
            # Who asked may be gone before all were; nobody would wait for the rest.
            publication.abandon(handed)
        return publication

    async def tell_audit(self, records: Sequence[AuditRecord]) -> None:
        """Return once `audit` has these, or is known to take nothing: then they are sent later."""
        if self._trail is not None and records:
            await asyncio.wrap_future(self._trail.tell(records))

    @property
    def audit_waiting(self) -> int:
        """Records for `audit` that the log does not have yet."""
        return 0 if self._trail is None else self._trail.waiting

    def _mark(self, topic: str, events: Sequence[OwedEvent]) -> Marks | None:
        if self._trail is None:
            return None
        return self._trail.mark(topic, [event.time_ms for event in events])

    async def _hand_over(
        self, topic: str, event: OwedEvent, index: int, publication: "Publication"
    ) -> None:
        marks = publication.headers(index)
        settle = partial(publication.settle, index)
        while True:
            try:
                self._produce(topic, event, marks, settle)
            except BufferError:
                await asyncio.sleep(_FULL_QUEUE_S)
            except KafkaException as refusal:
                settle(refusal.args[0], None)
                return
            else:
                return

    def _produce(
        self, topic: str, event: OwedEvent, marks: Sequence[Header], settle: Settle
    ) -> None:
        self._producer.produce(
            topic,
            event.body,
            None if event.webhook_id is None else event.webhook_id.encode(),
            timestamp=event.time_ms,
            headers=[
                ("event-id", event.event_id.encode()),
                ("event-type", event.event_type.encode()),
                *self._source,
                *marks,
            ],
            on_delivery=settle,
        )

    def _produce_audit(self, record: AuditRecord, settle: Settle) -> None:
        self._producer.produce(AUDIT_TOPIC, record.value, record.key, on_delivery=settle)

    def _poll(self) -> None:
        while not self._is_closed.is_set():
            self._producer.poll(_POLL_S)
            if self._is_fatal:
                self._replace_producer()
            if self._trail is not None:
                self._trail.work(time.monotonic())

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._is_fatal = True
            _log.error("log client: %s", error.str())
        else:
            COMPLAINTS.note(error)

    def _replace_producer(self) -> None:
        """Begin anew: an idempotent producer whose sequence is broken never sends again."""
        broken, self._producer = self._producer, Producer(self._config, logger=CLIENT_LOG)
        self._is_fatal = False
        broken.purge()
        broken.flush(_POLL_S)

    def _close(self) -> None:
        self._flush_events()
        if self._trail is not None and self._trail.end():
            self._producer.flush(_LAST_AUDIT_S)
        if self.audit_waiting:
            _log.error("audit-lost", extra={"records": self.audit_waiting, "reason": "the end"})
        self._is_closed.set()
        self._poller.join()

    def _flush_events(self) -> None:
        """Wait for events alone: `audit` may be a topic that takes nothing."""
        end_s = time.monotonic() + self._close_timeout_s
        while (left_s := end_s - time.monotonic()) > 0:
            audit = 0 if self._trail is None else self._trail.under_way
            if len(self._producer) <= audit:
                return
            self._producer.flush(min(_POLL_S, left_s))


def _stamper(settings: Settings) -> Stamper:
    # A mark has room for so much of a name, and for what can be printed.
    printable = "".join(each if each.isprintable() else "?" for each in settings.server)
    server = printable.encode()[:SERVER_BYTES_MAX].decode("utf-8", "ignore")
    return Stamper(server, window_ms=1_000 * settings.audit_window_s)


class Publication:
    """The acknowledgements of one call; they come in on the thread that polls."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, events: Sequence[OwedEvent], marks: Marks | None
    ) -> None:
        self._loop = loop
        self._events = events
        self._marks = marks
        self._arrivals: list[Arrival] = []
        self._counter = count(1)
        self._failures: dict[int, str] = {}
        self._not_there: set[int] = set()
        self._done = asyncio.Event()

    def headers(self, index: int) -> Sequence[Header]:
        """What marks the event at `index`."""
        return () if self._marks is None else self._marks.headers(index)

    def settle(self, index: int, error: KafkaError | None, message: Message | None) -> None:
        """Note what became of the event at `index`; safe on any thread."""
        if error is not None:
            self._not_there.add(index)
            self._failures[index] = error.str()
        elif message is not None and (arrival := _arrival(self._events[index], message)):
            self._arrivals.append(arrival)
        else:
            # One that was sent twice, and the log remembers no more where the first one lies.
            self._failures[index] = "the log has it and does not say where"
        self._count_settled()

    def abandon(self, start: int) -> None:
        """Note that the events from `start` on were not handed over."""
        for index in range(start, len(self._events)):
            self._not_there.add(index)
            self._failures[index] = "it was not sent"
            self._count_settled()

    def _count_settled(self) -> None:
        # Counting is atomic: one of the threads is the last.
        if next(self._counter) == len(self._events):
            if self._marks is not None:
                self._marks.settle(self._not_there)
            self._loop.call_soon_threadsafe(self._done.set)

    async def all_settled(self) -> list[Arrival]:
        """Wait for all; they come in any order.

        Raises:
            PublishFailed: see `EventPublisher.publish`.
        """
        if self._events:
            await self._done.wait()
        if self._failures:
            event_ids = tuple(self._events[index].event_id for index in sorted(self._failures))
            reason = next(iter(self._failures.values()))
            raise PublishFailed(event_ids, len(self._events), reason)
        return self._arrivals


def _arrival(event: OwedEvent, message: Message) -> Arrival | None:
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        return None
    return Arrival(event.time_ms, partition, offset)


def publisher_configuration(
    bootstrap_servers: str, properties: Mapping[str, str], delivery_timeout_s: float = 30.0
) -> dict[str, Any]:
    """What the client is made with; `properties` win over what is chosen here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "rewind-publisher",
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "snappy",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "delivery.timeout.ms": round(delivery_timeout_s * 1_000),
        **properties,
    }
