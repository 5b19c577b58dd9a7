"""When a stage tells what it received, and whom it holds up for it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from app.config import Settings
from app.live.receipts import AT_ONCE_RECORDS, Receipts
from app.log.event import LoggedEvent
from app.log.publisher import EventPublisher
from app.log.topics import EVENTS
from logbroker.client import audit_event
from logbroker.client.audit_event import Received
from logbroker.client.audit_mark import AUDIT_TOPIC
from logbroker.client.stamper import Stamper


def record(number: int) -> LoggedEvent:
    mark = f"api-1/1:1760000000000:{number}".encode()
    return LoggedEvent(number, 0, None, "", "", b"{}", "", mark)


def run(
    servers: str,
    scenario: Callable[[Receipts, EventPublisher], Awaitable[None]],
    *,
    server: str = "live-1",
    timeout_s: float = 30,
) -> None:
    """Run `scenario` with the receipts of a group's member and the publisher they go through."""

    async def with_publisher() -> None:
        settings = Settings(origin="here", server=server)
        async with EventPublisher(
            servers,
            origin="here",
            server="live-1",
            delivery_timeout_s=timeout_s,
            stamper=Stamper("live-1"),
        ) as publisher:
            receipts = Receipts.of(settings, publisher, EVENTS, "rewind-live")
            assert receipts is not None
            await scenario(receipts, publisher)

    asyncio.run(with_publisher())


def told(servers: str, count: int) -> list[Received]:
    """The first receipts in the log."""
    with closing(
        Consumer({"bootstrap.servers": servers, "group.id": "test", "log_level": 0})
    ) as consumer:
        consumer.assign([TopicPartition(AUDIT_TOPIC, each, 0) for each in range(4)])
        events = [audit_event.decode(each.value()) for each in consumer.consume(count, 10)]
    return [event for event in events if isinstance(event, Received)]


def test_once_they_cover_a_commit_the_log_has_them(foreign_broker: str) -> None:
    async def scenario(receipts: Receipts, publisher: EventPublisher) -> None:
        for number in range(3):
            receipts.note(record(number))
        assert await receipts.cover()
        assert publisher.audit_waiting == 0
        (event,) = await asyncio.to_thread(told, foreign_broker, 1)
        assert event.tier == "rewind-live@here"
        assert event.consumer.startswith("live-1/")
        (receipt,) = event.receipts
        assert (receipt.topic, receipt.producer, set(receipt.sequences)) == (
            EVENTS,
            "api-1/1",
            {0, 1, 2},
        )

    run(foreign_broker, scenario)


def test_few_wait_for_more_and_many_do_not(foreign_broker: str) -> None:
    async def scenario(receipts: Receipts, publisher: EventPublisher) -> None:
        receipts.note(record(0))
        assert await receipts.cover()
        receipts.note(record(1))
        receipts._next_s = float("inf")
        assert not await receipts.cover()
        for number in range(2, 1 + AT_ONCE_RECORDS):
            receipts.note(record(number))
        assert await receipts.cover()
        # And without any there is nothing to wait for.
        receipts._next_s = float("inf")
        assert await receipts.cover()

    run(foreign_broker, scenario)


def test_partitions_that_are_given_away_wait_for_what_is_being_told(foreign_broker: str) -> None:
    async def scenario(receipts: Receipts, publisher: EventPublisher) -> None:
        receipts.note(record(0))
        regular = asyncio.create_task(receipts.cover())
        await asyncio.sleep(0)
        assert publisher.audit_waiting == 1
        await receipts.cover_last()
        assert publisher.audit_waiting == 0
        assert await regular

    run(foreign_broker, scenario)


def test_a_log_that_is_away_holds_commits_up_for_a_while_and_no_longer(
    refused_address: str,
) -> None:
    async def scenario(receipts: Receipts, publisher: EventPublisher) -> None:
        receipts.note(record(0))
        first = asyncio.create_task(receipts.cover())
        await asyncio.sleep(0)
        assert not first.done()
        async with asyncio.timeout(60):
            assert await first
            receipts.note(record(1))
            receipts._next_s = 0.0
            assert await receipts.cover()
        # They are kept, should it come back.
        assert publisher.audit_waiting == 2

    run(refused_address, scenario, timeout_s=1)


def test_a_server_whose_name_the_audit_has_no_room_for_is_cut(foreign_broker: str) -> None:
    async def scenario(receipts: Receipts, publisher: EventPublisher) -> None:
        receipts.note(record(0))
        assert await receipts.cover()
        (event,) = await asyncio.to_thread(told, foreign_broker, 1)
        assert event.consumer.startswith("s" * 293 + "/")

    run(foreign_broker, scenario, server="s" * 1_000)
