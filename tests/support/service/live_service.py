"""A platform, developers with receivers, and live processes."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from app.domain.delivery import LiveOutcome
from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions
from app.domain.model import NewWebhook, Webhook
from app.domain.rules import Rule
from app.log.outcomes import DeliveryOutcome, decode_outcome
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS, ensure_topics
from app.variables import kafka_variable
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated
from tests.support.database.secret_keys import open_store
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

READY = "rewind live ready"
PARTITIONS = 4
RETENTION_MS = 6 * 86_400_000


class LogRecord(NamedTuple):
    partition: int
    offset: int
    key: str | None
    time_ms: int
    headers: dict[str, str]
    value: bytes


class LiveProcess(ServerProcess):
    """`rewind live`, with metrics at `metrics_port`."""

    def __init__(self, output: Path, environment: dict[str, str]) -> None:
        self.metrics_port = int(environment["REWIND_LIVE_METRICS_PORT"])
        super().__init__(["-m", "app", "live", "--stop-on-stdin-close"], output, environment)


class LiveScene:
    """A log, a database with webhooks, and live processes. A context manager."""

    def __init__(
        self, folder: Path, bootstrap_servers: str, database_url: str, partitions: int = PARTITIONS
    ) -> None:
        self._folder = folder
        self.bootstrap_servers = bootstrap_servers
        self._database_url = database_url
        self.partitions = partitions
        self._processes: list[LiveProcess] = []
        self._outcomes: OutcomeReader | None = None
        self.store = open_store(database_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.__exit__(*error)
        if self._outcomes is not None:
            self._outcomes.close()
        self.store.close()

    def make(self) -> None:
        """Create the tables and the topics."""
        make_migrated(self._database_url)
        self.make_topics()

    def make_topics(self) -> None:
        ensure_topics(self.bootstrap_servers, partitions=self.partitions, retention_ms=RETENTION_MS)

    def webhook(
        self,
        receiver: ReceiverThread,
        *event_types: str,
        where: dict[str, Any] | None = None,
        auto_recovery: bool = True,
        options: EndpointOptions = NO_OPTIONS,
    ) -> Webhook:
        """Create an enabled webhook of a receiver, with a rule if event types are given."""
        new = NewWebhook(
            receiver.url, "test", new_secret(), auto_recovery=auto_recovery, options=options
        )
        webhook = self.store.create_webhook(new)
        receiver.expect(webhook.secret)
        if event_types:
            self.put_rule(webhook, *event_types, where=where)
        return self.store.enable_webhook(webhook.id, webhook.url)

    def put_rule(
        self, webhook: Webhook, *event_types: str, where: dict[str, Any] | None = None
    ) -> None:
        conditions = tuple((where or {}).items())
        self.store.put_rule(Rule(webhook.id, "default", event_types, conditions))

    def live(self, *, launch_only: bool = False, **settings: object) -> LiveProcess:
        """Start a live process; with `launch_only`, do not wait until it is ready."""
        given = {
            "database": self._database_url,
            "bootstrap_servers": self.bootstrap_servers,
            "partitions": self.partitions,
            "allow_private_targets": True,
            "origin": "here",
            "server": "test",
            "live_metrics_port": free_port(),
            # Most tests wait until an event has failed for good.
            "scheduled_retries_s": "",
        } | settings
        environment = {f"REWIND_{name.upper()}": str(value) for name, value in given.items()}
        # After a crash, the next process waits for this session to expire.
        environment[kafka_variable("session.timeout.ms")] = "6000"
        output = self._folder / f"live-{len(self._processes)}.log"
        process = LiveProcess(output, environment)
        self._processes.append(process)
        if launch_only:
            process.launch()
        else:
            process.start(READY)
        return process

    def publish(self, *events: dict[str, Any]) -> None:
        """Write events to `events`, with the headers that the API sets."""
        self.produce(EVENTS, [(None, _headers(event), _body(event)) for event in events])

    def owe(self, webhook: Webhook, *events: dict[str, Any], time_ms: int | None = None) -> None:
        """Write events to `delivery_log`, as the API does when they name a webhook."""
        records = [(webhook.id, _headers(event), _body(event)) for event in events]
        self.produce(DELIVERY_LOG, records, time_ms=time_ms)

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[str | None, dict[str, Any], bytes | None]],
        *,
        time_ms: int | None = None,
    ) -> None:
        """Write records of (key, headers, value) with a stock client."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        for key, headers, value in records:
            producer.produce(
                topic, value, key, timestamp=time_ms or now_ms(), headers=list(headers.items())
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    def read(self, topic: str, partitions: int | None = None) -> list[LogRecord]:
        """Return all records of a topic in the order of partition and offset."""
        with closing(
            Consumer(
                {"bootstrap.servers": self.bootstrap_servers, "group.id": "test", "log_level": 0}
            )
        ) as consumer:
            ends = {}
            for partition in range(partitions or self.partitions):
                place = TopicPartition(topic, partition)
                _, ends[partition] = consumer.get_watermark_offsets(place, DEADLINE_S)
            consumer.assign([TopicPartition(topic, each, 0) for each in ends])
            records = list(_read_to(consumer, sum(ends.values())))
        return sorted(records)

    def outcomes(self) -> list[DeliveryOutcome]:
        """Return the outcomes in `delivery_outcomes`, in the order of partition and offset."""
        if self._outcomes is None:
            self._outcomes = OutcomeReader(self.bootstrap_servers, self.partitions)
        return self._outcomes.read()

    def outcome_counts(self) -> dict[LiveOutcome, int]:
        kinds = [each.outcome for each in self.outcomes()]
        return {kind: kinds.count(kind) for kind in kinds}

    def until_outcomes(self, count: int) -> list[DeliveryOutcome]:
        until(lambda: len(self.outcomes()) >= count, f"{count} outcomes")
        outcomes = self.outcomes()
        assert len(outcomes) == count
        return outcomes

    def rewind_group(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an earlier position of a group, once its members have gone."""
        with closing(
            Consumer(
                {"bootstrap.servers": self.bootstrap_servers, "group.id": group, "log_level": 0}
            )
        ) as consumer:
            position = TopicPartition(topic, partition, offset)

            def is_committed() -> bool:
                with suppress(KafkaException):  # while it has members
                    consumer.commit(offsets=[position], asynchronous=False)
                    return True
                return False

            until(is_committed, "the group has no members")

    def uncommitted(self, group: str, topic: str) -> int:
        """Return the consumer lag of a group."""
        with closing(
            Consumer(
                {"bootstrap.servers": self.bootstrap_servers, "group.id": group, "log_level": 0}
            )
        ) as consumer:
            places = _partitions(consumer, topic)
            committed = consumer.committed(places, DEADLINE_S)
            ends = [consumer.get_watermark_offsets(place, DEADLINE_S)[1] for place in places]
        return sum(end - max(0, place.offset) for place, end in zip(committed, ends, strict=True))


class OutcomeReader:
    """Reads the topic of outcomes from its start; each read continues where the last one ended.

    Tests read it in loops, and a new client for each turn would cost more than the service.
    """

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "test", "log_level": 0}
        )
        self._places = [TopicPartition(DELIVERY_OUTCOMES, each, 0) for each in range(partitions)]
        self._consumer.assign(self._places)
        self._found: list[tuple[int, int, DeliveryOutcome]] = []

    def read(self) -> list[DeliveryOutcome]:
        """Return all outcomes up to the end of the log, in the order of partition and offset."""
        ends = [self._consumer.get_watermark_offsets(each, DEADLINE_S)[1] for each in self._places]
        for record in _read_to(self._consumer, sum(ends) - len(self._found)):
            outcome = decode_outcome(record.value)
            assert outcome is not None
            self._found.append((record.partition, record.offset, outcome))
        self._found.sort(key=lambda each: each[:2])
        return [outcome for _, _, outcome in self._found]

    def close(self) -> None:
        self._consumer.close()


def event(number: int, event_type: str = "follow.created", **data: Any) -> dict[str, Any]:
    """Return an event of the platform."""
    return {"id": f"evt_{number}", "type": event_type, "data": data}


def events(start: int, end: int) -> list[dict[str, Any]]:
    return [event(number) for number in range(start, end)]


def ids(start: int, end: int) -> list[str]:
    return [f"evt_{number}" for number in range(start, end)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _headers(event: dict[str, Any]) -> dict[str, Any]:
    return {"event-id": event["id"], "event-type": event["type"]}


def _body(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    found = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
    return [TopicPartition(topic, each) for each in found]


def _read_to(consumer: Consumer, count: int) -> Iterator[LogRecord]:
    end_s = time.monotonic() + DEADLINE_S
    while count > 0:
        assert time.monotonic() < end_s, f"{count} records did not come"
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        count -= 1
        partition, offset = message.partition(), message.offset()
        key, value = message.key(), message.value()
        headers: Any = message.headers() or ()
        assert partition is not None
        assert offset is not None
        assert value is not None
        yield LogRecord(
            partition,
            offset,
            None if key is None else key.decode(),
            message.timestamp()[1],
            {name: content.decode() for name, content in headers},
            value,
        )
