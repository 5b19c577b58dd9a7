"""The audit on a real broker: what producers sent is compared with what consumers received."""

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from logbroker.client import received_counter
from logbroker.client.audit_format.mark import find_mark_header, parse_mark
from logbroker.client.audit_format.report import PublishedReport, decode
from logbroker.client.audit_reporter import AuditProducer
from logbroker.client.received_counter import ReceivedCounter
from logbroker.consumer import (
    AuditedProducer,
    BrokersUnavailable,
    ClientClosed,
    ConsumerConnector,
    NewMessage,
    Producer,
    SendFailed,
    audited_producer,
    received_reports,
)
from tests.support.kafka.audit_counts import Counts, audit_values, compared
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.paper_group import PaperConsumer, make_topic, until_handed
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, POLL_S, until

TOPIC = "clicks"
PARTITIONS = 4
MINUTE_MS = 60_000
T0 = 1_763_712_000_000


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    """A broker with the topic, and with that of the audit."""
    make_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
    make_topic(broker.bootstrap_servers, "audit", 2)
    return broker.bootstrap_servers


@pytest.fixture
def bare_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that makes no topics by itself, with the topic alone."""
    with BrokerProcess(tmp_path / "bare", "--no-auto-create-topics") as process:
        process.serve().make_topic(TOPIC, PARTITIONS)
        yield process


def read(servers: str, count: int) -> list[Message]:
    """So many messages of the topic, by a client that is not ours."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "any"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    found: list[Message] = []

    def is_read() -> bool:
        found.extend(consumer.consume(count - len(found), POLL_S))
        return len(found) == count

    until(is_read, f"{count} messages are read")
    consumer.close()
    return found


def published(servers: str) -> list[PublishedReport]:
    events = [decode(value) for value in audit_values(servers)]
    return [event for event in events if isinstance(event, PublishedReport)]


def headers_of(message: Message) -> list[tuple[str, bytes]]:
    return message.headers() or []  # type: ignore[return-value]


def send(producer: AuditedProducer, *values: str, time_ms: int | None = None) -> None:
    messages = [NewMessage(value.encode(), (), time_ms) for value in values]
    producer.send(TOPIC, messages).result(DEADLINE_S)


def test_each_message_has_its_server_its_mark_and_its_time(servers: str) -> None:
    passed_on = NewMessage(
        b"passed on",
        [("audit", b"other:0:0"), ("trace", b"7"), ("server", b"other")],
        T0 + 2 * MINUTE_MS,
    )
    with AuditedProducer(servers, server="api-1") as producer:
        producer.send(TOPIC, [b"now", passed_on, NewMessage(b"then", (), T0)]).result(DEADLINE_S)
    now, passed, then = sorted(read(servers, 3), key=lambda message: message.offset() or 0)
    marks = [parse_mark(find_mark_header(headers_of(each))) for each in (now, passed, then)]
    times = [each.timestamp()[1] for each in (now, passed, then)]
    assert times[1:] == [T0 + 2 * MINUTE_MS, T0]
    assert times[0] > T0
    for mark, time_ms in zip(marks, times, strict=True):
        assert mark is not None
        assert mark.producer.startswith("api-1/")
        assert (mark.window_ms, mark.sequence) == (time_ms - time_ms % MINUTE_MS, 0)
    assert [name for name, _ in headers_of(now)] == ["server", "audit"]
    assert headers_of(passed)[:2] == [("trace", b"7"), ("server", b"api-1")]
    assert len(headers_of(passed)) == 3


def test_a_window_is_published_when_it_is_late_and_the_rest_at_the_end(servers: str) -> None:
    with AuditedProducer(servers, lateness_s=600.0) as producer:
        send(producer, "a", "b", time_ms=T0)
        send(producer, "c", time_ms=T0 + 10 * MINUTE_MS)
        assert not published(servers)
        send(producer, "d", time_ms=T0 + 11 * MINUTE_MS)
        until(lambda: published(servers), "the first window is published")
        (event,) = published(servers)
        assert (event.topic, event.window_ms, event.window_end_ms) == (TOPIC, T0, T0 + MINUTE_MS)
        assert list(event.sequences) == [0, 1]
        # A message that comes later than that is published with the others of its window.
        send(producer, "e", time_ms=T0 + 1)
    found = {(each.window_ms - T0, *each.sequences) for each in published(servers)}
    assert found == {(0, 0, 1), (0, 0, 1, 2), (10 * MINUTE_MS, 0), (11 * MINUTE_MS, 0)}


def test_a_message_that_was_not_acknowledged_is_not_published(servers: str) -> None:
    with AuditedProducer(servers, client_settings={"message.max.bytes": 10_000}) as producer:
        sending = producer.send(TOPIC, [b"first", bytes(100_000), b"third"])
        with pytest.raises(SendFailed):
            sending.result(DEADLINE_S)
        with pytest.raises(ValueError, match="one message"):
            producer.send(TOPIC, [])
        with pytest.raises(ValueError, match="time"):
            producer.send(TOPIC, [NewMessage(b"early", (), T0), NewMessage(b"x", (), -5)])
    (event,) = published(servers)
    assert list(event.sequences) == [0, 2]
    with pytest.raises(ClientClosed):
        producer.send(TOPIC, [b"late"])
    producer.close()
    assert len(published(servers)) == 1


def test_lost_and_repeated_messages_of_a_stock_consumer_are_counted_separately(
    servers: str,
) -> None:
    producers = [AuditedProducer(servers, server=f"api-{number}") for number in range(2)]
    for number, producer in enumerate(producers):
        for start in range(0, 500, 50):
            values = [f"{number}-{start + each}".encode() for each in range(50)]
            producer.send(TOPIC, values, b"%d" % start).result(DEADLINE_S)
        producer.close()
    # Sent by somebody who is not audited.
    with Producer(servers) as stranger:
        stranger.send(TOPIC, [b"stranger"]).result(DEADLINE_S)
    counters = [ReceivedCounter("billing", f"web-{number}") for number in range(2)]
    for place, message in enumerate(read(servers, 1_001)):
        if message.value() == b"1-77":
            continue
        for counter in counters if place % 100 == 99 else [counters[place % 2]]:
            counter.count_message(TOPIC, find_mark_header(headers_of(message)))
    reporter = AuditProducer(servers, timeout_s=DEADLINE_S)
    for counter in counters:
        assert reporter.report(counter.take_reports)
    values = audit_values(servers)
    counts = compared(values)
    assert counts._replace(duplicated=0) == Counts(1_000, 1, 0, 0)
    # One of the ten may have been the stranger's or the lost one.
    assert 8 <= counts.duplicated <= 10
    assert compared(values + values) == counts, "written twice, they say the same"


@pytest.fixture
def connect(servers: str, zookeeper: SharedZooKeeper) -> Iterator[Callable[..., ConsumerConnector]]:
    """A new consumer of the group that is audited."""
    chroot = zookeeper.fresh_chroot()
    with ExitStack() as stack:

        def connect(**options: object) -> ConsumerConnector:
            arguments = {"auto_offset_reset": "smallest", "session_timeout_s": 30.0, **options}
            connector = ConsumerConnector(
                chroot,
                "readers",
                servers,
                audit_tier="billing",
                **arguments,  # type: ignore[arg-type]
            )
            return stack.enter_context(connector)

        yield connect


def test_a_connector_reports_messages_before_it_commits_offsets(
    servers: str, connect: Callable[..., ConsumerConnector]
) -> None:
    with AuditedProducer(servers) as producer:
        send(producer, *map(str, range(20)))
    with connect(auto_commit_interval_s=None) as connector:
        stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
        assert len(list(itertools.islice(stream, 12))) == 12
        connector.commit_offsets()
        assert compared(audit_values(servers)) == Counts(20, 8, 0, 0)
        assert len(list(itertools.islice(stream, 3))) == 3
    # These three were not committed, and come again.
    with connect() as connector:
        stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
        assert len(list(itertools.islice(stream, 8))) == 8
    assert compared(audit_values(servers)) == Counts(20, 0, 3, 0)


def test_offsets_are_not_stored_while_the_audit_does_not_know_of_them(
    bare_broker: BrokerProcess, zookeeper: SharedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_reports, "REPORT_TIMEOUT_S", 1.0)
    servers = bare_broker.bootstrap_servers
    producer = AuditedProducer(servers, lateness_s=0.0)
    send(producer, *"abc", time_ms=T0)
    with ConsumerConnector(
        zookeeper.fresh_chroot(),
        "readers",
        servers,
        auto_offset_reset="smallest",
        auto_commit_interval_s=None,
        session_timeout_s=30.0,
        audit_tier="billing",
    ) as connector:
        stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
        assert len(list(itertools.islice(stream, 3))) == 3
        with pytest.raises(BrokersUnavailable, match="audit"):
            connector.commit_offsets()
        bare_broker.make_topic("audit")

        def is_stored() -> bool:
            try:
                return sum(connector.commit_offsets().values()) == 3
            except BrokersUnavailable:
                return False

        until(is_stored, "the offsets are stored")
    # What the producer could not publish either, it publishes by itself.
    until(lambda: published(servers), "the window is published")
    producer.close()
    assert compared(audit_values(servers)) == Counts(3, 0, 0, 0)


def test_a_consumer_that_leaves_stores_nothing_that_the_audit_does_not_know(
    bare_broker: BrokerProcess, zookeeper: SharedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, chroot = bare_broker.bootstrap_servers, zookeeper.fresh_chroot()
    with AuditedProducer(servers) as producer:
        send(producer, *"abc")

        def handed() -> list[bytes | None]:
            with ConsumerConnector(
                chroot,
                "readers",
                servers,
                auto_offset_reset="smallest",
                session_timeout_s=30.0,
                audit_tier="billing",
            ) as connector:
                stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
                return [message.value for message in itertools.islice(stream, 3)]

        with monkeypatch.context() as patch:
            patch.setattr(received_reports, "REPORT_TIMEOUT_S", 1.0)
            assert handed() == [b"a", b"b", b"c"]
        bare_broker.make_topic("audit")
        assert handed() == [b"a", b"b", b"c"]
    # The first consumer reported nothing, so the messages were read again.
    assert compared(audit_values(servers)) == Counts(3, 0, 0, 0)


def test_a_full_book_is_taken_before_its_time(
    servers: str, connect: Callable[..., ConsumerConnector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_counter, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(received_reports, "REPORT_EVERY_S", 3_600.0)
    with AuditedProducer(servers) as producer:
        send(producer, *"abc")
    with connect(auto_commit_interval_s=None) as connector:
        stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
        assert len(list(itertools.islice(stream, 3))) == 3
        until(lambda: compared(audit_values(servers)).missing < 3, "some receipts are there")


def test_a_consumer_killed_between_receipts_and_commit_makes_repeats_and_no_loss(
    servers: str, zookeeper: SharedZooKeeper, tmp_path: Path
) -> None:
    chroot = zookeeper.fresh_chroot()
    with ExitStack() as stack:

        def start(name: str, commit_s: float) -> PaperConsumer:
            consumer = PaperConsumer(
                name,
                tmp_path,
                TOPIC,
                zookeeper=chroot,
                group_id="readers",
                bootstrap_servers=servers,
                session_timeout_s=3.0,
                auto_offset_reset="smallest",
                auto_commit_interval_s=commit_s,
                audit_tier="billing",
            )
            stack.enter_context(consumer)
            consumer.join()
            return consumer

        # It tells what it was handed, and commits only when it is too late.
        first = start("first", 3_600.0)
        with AuditedProducer(servers) as producer:
            send(producer, *map(str, range(30)))
        until(
            lambda: compared(audit_values(servers)).missing == 0, "the first consumer reported all"
        )
        first.kill()
        second = start("second", 0.2)
        until_handed(map(str, range(30)), [second])
        with AuditedProducer(servers) as producer:
            send(producer, *map(str, range(30, 60)))
        until_handed(map(str, range(60)), [second])
        second.kill()
        third = start("third", 0.2)
        with AuditedProducer(servers) as producer:
            send(producer, "last")
        until_handed(["last"], [third])
        third.leave()
    counts = compared(audit_values(servers))
    assert counts.published == 61
    assert counts.missing == 0
    assert counts.duplicated >= 30
    assert counts.uncovered == 0


def test_a_producer_that_dies_leaves_its_messages_uncovered_and_none_missing(
    servers: str, connect: Callable[..., ConsumerConnector]
) -> None:
    dying = AuditedProducer(servers, server="dying")
    send(dying, *"abc")
    with AuditedProducer(servers, server="living") as living:
        send(living, *"defg")
    with connect() as connector:
        stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
        assert len(list(itertools.islice(stream, 7))) == 7
    # As if it had died before: it publishes its window only now.
    assert compared(audit_values(servers)) == Counts(4, 0, 0, 3)
    dying.close()
    assert compared(audit_values(servers)) == Counts(7, 0, 0, 0)


def test_a_producer_whose_broker_is_gone_closes_and_says_what_is_not_published(
    bare_broker: BrokerProcess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(audited_producer, "REPORT_TIMEOUT_S", 1.0)
    bare_broker.make_topic("audit")
    with caplog.at_level(logging.ERROR, "logbroker.consumer.audited_producer"):
        producer = AuditedProducer(bare_broker.bootstrap_servers, delivery_timeout_s=5.0)
        send(producer, *"abc", time_ms=T0)
        bare_broker.kill()
        lost = producer.send(TOPIC, [b"d"])
        producer.close()
    with pytest.raises(SendFailed):
        lost.result(DEADLINE_S)
    assert f"3 to 'clicks' in window {T0}" in caplog.text
