"""What the publisher puts into the log, and what it says when the log does not take it."""

import asyncio
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from app.log.errors import PublishFailed
from app.log.event import OwedEvent
from app.log.publisher import EventPublisher
from app.replay.lateness import Arrival
from logbroker.client.partitioner import partition_for_key

PARTITIONS = 4
OTHER = "wh_2"
"""A webhook whose events lie in another partition than those of `wh_1`."""
TIME_MS = 1_795_000_000_000


def event(number: int, webhook_id: str | None = "wh_1") -> OwedEvent:
    return OwedEvent(webhook_id, f"evt_{number}", "user.followed", TIME_MS + number, b"{}")


def publisher(bootstrap_servers: str, timeout_s: float = 10.0) -> EventPublisher:
    return EventPublisher(
        bootstrap_servers, origin="west", server="host-1", delivery_timeout_s=timeout_s
    )


def read(bootstrap_servers: str, topic: str, partition: int, count: int) -> list[Message]:
    with closing(
        Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test"})
    ) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return consumer.consume(count, 10)


def test_a_record_carries_key_time_body_and_headers(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as door:
            await door.publish("owed", [event(7)])

    asyncio.run(scenario())
    (record,) = read(foreign_broker, "owed", partition_for_key(b"wh_1", PARTITIONS), 1)
    assert record.error() is None
    assert (record.key(), record.value()) == (b"wh_1", b"{}")
    assert record.timestamp()[1] == TIME_MS + 7
    assert record.headers() == [
        ("event-id", b"evt_7"),
        ("event-type", b"user.followed"),
        ("origin", b"west"),
        ("server", b"host-1"),
    ]


def test_a_key_lands_where_the_partitioner_says_and_keeps_its_order(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as door:
            await door.publish(
                "owed", [event(n, f"wh_{key}") for n in range(200) for key in range(6)]
            )

    asyncio.run(scenario())
    seen: dict[bytes, list[int]] = {}
    for partition in range(PARTITIONS):
        keys = [f"wh_{key}".encode() for key in range(6)]
        mine = [key for key in keys if partition_for_key(key, PARTITIONS) == partition]
        for record in read(foreign_broker, "owed", partition, 200 * len(mine)) if mine else []:
            key = record.key()
            assert key in mine
            seen.setdefault(key, []).append(record.timestamp()[1] - TIME_MS)
    assert seen == {f"wh_{key}".encode(): list(range(200)) for key in range(6)}


def test_an_event_that_is_owed_to_nobody_has_no_key(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as door:
            await door.publish("happened", [event(1, None)])

    asyncio.run(scenario())
    with closing(Consumer({"bootstrap.servers": foreign_broker, "group.id": "test"})) as consumer:
        consumer.assign([TopicPartition("happened", n, 0) for n in range(PARTITIONS)])
        (record,) = consumer.consume(1, 10)
    assert (record.error(), record.key()) == (None, None)


def test_nothing_to_publish_is_done_at_once(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as door:
            await door.publish("owed", [])

    asyncio.run(scenario())


def test_many_at_once_are_all_acknowledged(foreign_broker: str) -> None:
    async def scenario() -> None:
        async with publisher(foreign_broker) as door:
            batches = [[event(n) for n in range(k, k + 2_000)] for k in range(0, 10_000, 2_000)]
            await asyncio.gather(*(door.publish("owed", batch) for batch in batches))

    asyncio.run(scenario())
    records = read(foreign_broker, "owed", partition_for_key(b"wh_1", PARTITIONS), 10_000)
    assert {record.timestamp()[1] - TIME_MS for record in records} == set(range(10_000))


def test_a_publisher_tells_where_each_event_lies(foreign_broker: str) -> None:
    async def scenario() -> list[Arrival]:
        async with publisher(foreign_broker) as door:
            await door.publish("owed", [event(0), event(1)])
            both = [event(n, webhook_id) for n in range(2, 100) for webhook_id in ("wh_1", OTHER)]
            return await door.publish("owed", both)

    arrivals = asyncio.run(scenario())
    here, there = (partition_for_key(key.encode(), PARTITIONS) for key in ("wh_1", OTHER))
    assert sorted(arrivals, key=lambda arrival: (arrival.partition != here, arrival.offset)) == [
        *(Arrival(TIME_MS + n, here, n) for n in range(2, 100)),
        *(Arrival(TIME_MS + n, there, n - 2) for n in range(2, 100)),
    ]


def test_events_that_no_log_takes_are_named(refused_address: str) -> None:
    async def scenario() -> None:
        async with publisher(refused_address, timeout_s=0.5) as door:
            with pytest.raises(PublishFailed) as failed:
                await door.publish("owed", [event(n) for n in range(7)])
        assert failed.value.event_ids == tuple(f"evt_{n}" for n in range(7))
        assert failed.value.of == 7
        assert str(failed.value).startswith(
            "7 of 7 events were not acknowledged (evt_0, evt_1, evt_2, evt_3, evt_4, ...): "
        )

    asyncio.run(scenario())


def test_only_the_event_that_is_too_large_fails(foreign_broker: str) -> None:
    async def scenario() -> None:
        huge = OwedEvent("wh_1", "evt_huge", "user.followed", TIME_MS, b"x" * 2_000_000)
        async with publisher(foreign_broker) as door:
            with pytest.raises(PublishFailed) as failed:
                await door.publish("owed", [event(1), huge, event(2)])
        assert failed.value.event_ids == ("evt_huge",)
        assert failed.value.of == 3

    asyncio.run(scenario())
    records = read(foreign_broker, "owed", partition_for_key(b"wh_1", PARTITIONS), 2)
    assert [record.timestamp()[1] - TIME_MS for record in records] == [1, 2]
