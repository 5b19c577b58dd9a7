"""Publishes events and tells when the log holds them for good."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.config import Settings
from app.log.complaints import CLIENT_LOG, COMPLAINTS
from app.log.errors import PublishFailed
from app.log.event import OwedEvent
from app.log.topics import ensure_topics
from app.replay.lateness import Arrival

_log: Final = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_FULL_QUEUE_S: Final = 0.01
"""How long to wait before another look at a full queue; in that time thousands leave it."""

_TURN_EVENTS: Final = 500
"""Events handed over before other tasks get a turn, a millisecond or two."""


class EventPublisher:
    """Publishes from one event loop; an async context manager.

    Every event is acknowledged by all replicas in sync, is written once although the client may
    send it again, and lands in the partition that Java's hash of its key names. Records carry
    the headers `event-id`, `event-type`, `origin` (the data centre) and `server`.

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
        self._poller = threading.Thread(target=self._poll, name="publisher-poll", daemon=True)

    @classmethod
    def of(
        cls, settings: Settings, *, topics_timeout_s: float, close_timeout_s: float | None = None
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
            ),
            close_timeout_s=close_timeout_s,
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
        publication = Publication(asyncio.get_running_loop(), events)
        for index, event in enumerate(events):
            await self._hand_over(topic, event, partial(publication.settle, index))
            if index % _TURN_EVENTS == _TURN_EVENTS - 1:
                await asyncio.sleep(0)
        return publication

    async def _hand_over(self, topic: str, event: OwedEvent, settle: "partial[None]") -> None:
        while True:
            try:
                self._produce(topic, event, settle)
            except BufferError:
                await asyncio.sleep(_FULL_QUEUE_S)
            except KafkaException as refusal:
                settle(refusal.args[0], None)
                return
            else:
                return

    def _produce(self, topic: str, event: OwedEvent, settle: "partial[None]") -> None:
        self._producer.produce(
            topic,
            event.body,
            None if event.webhook_id is None else event.webhook_id.encode(),
            timestamp=event.time_ms,
            headers=[
                ("event-id", event.event_id.encode()),
                ("event-type", event.event_type.encode()),
                *self._source,
            ],
            on_delivery=settle,
        )

    def _poll(self) -> None:
        while not self._is_closed.is_set():
            self._producer.poll(_POLL_S)
            if self._is_fatal:
                self._replace_producer()

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
        self._producer.flush(self._close_timeout_s)
        self._is_closed.set()
        self._poller.join()


class Publication:
    """The acknowledgements of one call; they come in on the thread that polls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, events: Sequence[OwedEvent]) -> None:
        self._loop = loop
        self._events = events
        self._arrivals: list[Arrival] = []
        self._settled: list[int] = []
        self._failures: dict[int, str] = {}
        self._done = asyncio.Event()

    def settle(self, index: int, error: KafkaError | None, message: Message | None) -> None:
        """Note what became of the event at `index`; safe on any thread."""
        if error is not None:
            self._failures[index] = error.str()
        elif message is not None and (arrival := _arrival(self._events[index], message)):
            self._arrivals.append(arrival)
        else:
            # One that was sent twice, and the log remembers no more where the first one lies.
            self._failures[index] = "the log has it and does not say where"
        # Appending and measuring are atomic each: whoever appends last sees the full length.
        self._settled.append(index)
        if len(self._settled) == len(self._events):
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
