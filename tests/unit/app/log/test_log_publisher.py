"""What the publisher writes to the log, and how it reports a log that rejects it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from app.domain.lateness import Arrival
from app.log.errors import PublishFailed
from app.log.event import NewEvent
from app.log.publisher import EventPublisher, Publication
from app.log.publisher_audit import AuditOptions, MessageMarks
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS
from logbroker.client.audit_format.mark import AUDIT_TOPIC, parse_mark
from logbroker.client.audit_format.report import AuditRecord, PublishedReport, decode
from logbroker.client.partitioner import partition_for_key
from logbroker.client.stamper import Stamper
from tests.support.processes.waiting import DEADLINE_S

PARTITIONS = 4
OTHER = "wh_2"
"""A webhook whose events lie in another partition than those of `wh_1`."""
TIME_MS = 1_795_000_000_000


def event(number: int, webhook_id: str | None = "wh_1") -> NewEvent:
    return NewEvent(webhook_id, f"evt_{number}", "user.followed", TIME_MS + number, b"{}")


def publisher(
    bootstrap_servers: str, timeout_s: float = 10.0, stamper: Stamper | None = None
) -> EventPublisher:
    return EventPublisher(
        bootstrap_servers,
        origin="west",
        server="host-1",
        delivery_timeout_s=timeout_s,
        audit=None if stamper is None else AuditOptions(stamper),
    )


def read(bootstrap_servers: str, topic: str, partition: int, count: int) -> list[Message]:
    with closing(
        Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test"})
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return consumer.consume(count, 10)


def test_a_record_carries_key_time_body_and_headers(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as sink:
            for_account = event(8)._replace(account_id="acc_1")
            await sink.publish("deliveries", [event(7), for_account])

    asyncio.run(scenario())
    partition = partition_for_key(b"wh_1", PARTITIONS)
    record, for_account = read(foreign_broker, "deliveries", partition, 2)
    assert record.error() is None
    assert (record.key(), record.value()) == (b"wh_1", b"{}")
    assert record.timestamp()[1] == TIME_MS + 7
    assert record.headers() == [
        ("event-id", b"evt_7"),
        ("event-type", b"user.followed"),
        ("origin", b"west"),
        ("server", b"host-1"),
    ]
    assert dict(for_account.headers() or ())["account-id"] == b"acc_1"


def test_a_key_lands_where_the_partitioner_says_and_keeps_its_order(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as sink:
            await sink.publish(
                "deliveries", [event(n, f"wh_{key}") for n in range(200) for key in range(6)]
            )

    asyncio.run(scenario())
    seen: dict[bytes, list[int]] = {}
    for partition in range(PARTITIONS):
        keys = [f"wh_{key}".encode() for key in range(6)]
        mine = [key for key in keys if partition_for_key(key, PARTITIONS) == partition]
        for record in (
            read(foreign_broker, "deliveries", partition, 200 * len(mine)) if mine else []
        ):
            key = record.key()
            assert key in mine
            seen.setdefault(key, []).append(record.timestamp()[1] - TIME_MS)
    assert seen == {f"wh_{key}".encode(): list(range(200)) for key in range(6)}


def test_an_event_without_a_webhook_has_no_key(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as sink:
            await sink.publish("happened", [event(1, None)])

    asyncio.run(scenario())
    with closing(Consumer({"bootstrap.servers": foreign_broker, "group.id": "test"})) as consumer:
        consumer.assign([TopicPartition("happened", n, 0) for n in range(PARTITIONS)])
        (record,) = consumer.consume(1, 10)
    assert (record.error(), record.key()) == (None, None)


def test_nothing_to_publish_is_done_at_once(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as sink:
            await sink.publish("deliveries", [])

    asyncio.run(scenario())


def test_many_at_once_are_all_acknowledged(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as sink:
            batches = [[event(n) for n in range(k, k + 2_000)] for k in range(0, 10_000, 2_000)]
            await asyncio.gather(*(sink.publish("deliveries", batch) for batch in batches))

    asyncio.run(scenario())
    records = read(foreign_broker, "deliveries", partition_for_key(b"wh_1", PARTITIONS), 10_000)
    assert {record.timestamp()[1] - TIME_MS for record in records} == set(range(10_000))


def test_a_publisher_returns_the_position_of_each_event(foreign_broker: str) -> None:
    async def scenario() -> list[Arrival]:
        async with publisher(foreign_broker) as sink:
            await sink.publish("deliveries", [event(0), event(1)])
            both = [event(n, webhook_id) for n in range(2, 100) for webhook_id in ("wh_1", OTHER)]
            return await sink.publish("deliveries", both)

    arrivals = asyncio.run(scenario())
    here, there = (partition_for_key(key.encode(), PARTITIONS) for key in ("wh_1", OTHER))
    assert sorted(arrivals, key=lambda arrival: (arrival.partition != here, arrival.offset)) == [
        *(Arrival(TIME_MS + n, here, n) for n in range(2, 100)),
        *(Arrival(TIME_MS + n, there, n - 2) for n in range(2, 100)),
    ]


def test_events_that_no_log_takes_are_named(refused_address: str) -> None:
    async def scenario() -> None:
        async with publisher(refused_address, timeout_s=0.5) as sink:
            with pytest.raises(PublishFailed) as failed:
                await sink.publish("deliveries", [event(n) for n in range(7)])
        assert failed.value.event_ids == tuple(f"evt_{n}" for n in range(7))
        assert failed.value.of == 7
        assert str(failed.value).startswith(
            "7 of 7 events were not acknowledged (evt_0, evt_1, evt_2, evt_3, evt_4, ...): "
        )

    asyncio.run(scenario())


def test_only_the_event_that_is_too_large_fails(foreign_broker: str) -> None:
    async def scenario() -> None:
        huge = NewEvent("wh_1", "evt_huge", "user.followed", TIME_MS, b"x" * 2_000_000)
        async with publisher(foreign_broker) as sink:
            with pytest.raises(PublishFailed) as failed:
                await sink.publish("deliveries", [event(1), huge, event(2)])
        assert failed.value.event_ids == ("evt_huge",)
        assert failed.value.of == 3

    asyncio.run(scenario())
    records = read(foreign_broker, "deliveries", partition_for_key(b"wh_1", PARTITIONS), 2)
    assert [record.timestamp()[1] - TIME_MS for record in records] == [1, 2]


def audit_reports(bootstrap_servers: str, count: int) -> list[PublishedReport]:
    """The first `count` reports in `audit`."""
    with closing(
        Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test", "log_level": 0})
    ) as consumer:
        consumer.assign([TopicPartition(AUDIT_TOPIC, each, 0) for each in range(PARTITIONS)])
        return list(_published(consumer, count))


def _published(consumer: Consumer, count: int) -> Iterator[PublishedReport]:
    end_s = time.monotonic() + DEADLINE_S
    while count:
        assert time.monotonic() < end_s, f"{count} audit reports did not arrive"
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        event = decode(message.value())
        assert isinstance(event, PublishedReport)
        assert message.key() == event.producer.encode()
        count -= 1
        yield event


def test_events_are_marked_and_outcomes_are_not(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker, stamper=stamper) as sink:
            for topic in (EVENTS, DELIVERY_LOG, DELIVERY_OUTCOMES):
                await sink.publish(topic, [event(0), event(1)])

    stamper = Stamper("host-1")
    asyncio.run(scenario())
    place = partition_for_key(b"wh_1", PARTITIONS)
    for topic in (EVENTS, DELIVERY_LOG):
        marks = [
            parse_mark(dict(record.headers() or ())["audit"])
            for record in read(foreign_broker, topic, place, 2)
        ]
        window_ms = TIME_MS - TIME_MS % 60_000
        assert [mark and (mark.window_ms, mark.sequence) for mark in marks] == [
            (window_ms, 0),
            (window_ms, 1),
        ]
    (first, _) = read(foreign_broker, DELIVERY_OUTCOMES, place, 2)
    assert "audit" not in dict(first.headers() or ())


def test_acknowledged_events_are_reported_to_the_audit_at_shutdown(foreign_broker: str) -> None:
    async def scenario() -> None:
        huge = NewEvent("wh_1", "evt_huge", "user.followed", TIME_MS, b"x" * 2_000_000)
        async with publisher(foreign_broker, stamper=Stamper("host-1")) as sink:
            with pytest.raises(PublishFailed):
                await sink.publish(EVENTS, [event(0), huge, event(2)])
            await sink.publish(DELIVERY_LOG, [event(n) for n in range(5)])

    asyncio.run(scenario())
    found = {each.topic: set(each.sequences) for each in audit_reports(foreign_broker, 2)}
    # The second one is not in the log.
    assert found == {EVENTS: {0, 2}, DELIVERY_LOG: {0, 1, 2, 3, 4}}


def test_a_window_is_reported_without_further_events(foreign_broker: str) -> None:
    async def scenario() -> list[PublishedReport]:
        stamper = Stamper("host-1", window_ms=1_000, lateness_ms=1)
        async with publisher(foreign_broker, stamper=stamper) as sink:
            await sink.publish(EVENTS, [event(0), event(1)])
            return await asyncio.to_thread(audit_reports, foreign_broker, 1)

    (found,) = asyncio.run(scenario())
    assert set(found.sequences) == {0, 1}


def test_an_event_with_an_invalid_time_is_published_without_a_mark(
    foreign_broker: str,
) -> None:
    async def scenario() -> None:
        far = NewEvent("wh_1", "evt_far", "user.followed", 2**50, b"{}")
        async with publisher(foreign_broker, stamper=Stamper("host-1")) as sink:
            await sink.publish(EVENTS, [event(0), far, event(60_000), event(1)])

    asyncio.run(scenario())
    records = read(foreign_broker, EVENTS, partition_for_key(b"wh_1", PARTITIONS), 4)
    marks = [parse_mark(dict(record.headers() or ()).get("audit")) for record in records]
    start_ms = TIME_MS - TIME_MS % 60_000
    assert [mark and (mark.window_ms, mark.sequence) for mark in marks] == [
        (start_ms, 0),
        None,
        (start_ms + 60_000, 0),
        (start_ms, 1),
    ]
    reports = audit_reports(foreign_broker, 2)
    assert {each.window_ms: set(each.sequences) for each in reports} == {
        start_ms: {0, 1},
        start_ms + 60_000: {0},
    }


def test_events_that_were_not_sent_keep_no_window_open() -> None:
    async def scenario() -> None:
        marks = MessageMarks(stamper, EVENTS, [TIME_MS] * 4)
        publication = Publication(asyncio.get_running_loop(), [event(n) for n in range(4)], marks)
        publication.record_outcome(0, None, None)
        publication.record_outcome(1, KafkaError(KafkaError._MSG_TIMED_OUT), None)
        publication.abandon(2)
        with pytest.raises(PublishFailed) as failed:
            await publication.all_settled()
        assert failed.value.event_ids == ("evt_0", "evt_1", "evt_2", "evt_3")

    stamper = Stamper("host-1", lateness_ms=1_000)
    asyncio.run(scenario())
    assert not stamper.due_reports(0.0)
    (record,) = stamper.due_reports(10.0)
    found = decode(record.value)
    # The first one is in the log, without a known offset.
    assert isinstance(found, PublishedReport)
    assert set(found.sequences) == {0}


def test_reports_delay_shutdown_no_longer_than_one_attempt(refused_address: str) -> None:
    async def scenario() -> None:
        async with publisher(refused_address, timeout_s=0.5, stamper=Stamper("host-1")) as sink:
            record = AuditRecord(b"tier", b"{}")
            async with asyncio.timeout(30):
                await sink.report_to_audit([record])
            assert sink.pending_audit_reports == 1

    asyncio.run(scenario())
