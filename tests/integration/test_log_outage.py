"""The publisher while brokers crash, return, and return without their data."""

import asyncio
import shutil
from contextlib import closing

import pytest

from app.domain.model import OffsetRange, Window
from app.log.event import LoggedEvent, NewEvent
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.reader import ReplayReader
from app.log.reader_clients import ReaderClients
from app.log.topics import DELIVERY_LOG, ensure_topics
from logbroker.client.partitioner import partition_for_key
from tests.support.kafka.broker_process import BrokerProcess

RETENTION_MS = 6 * 86_400_000
PARTITIONS = 2
KEY = b"wh_1"
PARTITION = partition_for_key(KEY, PARTITIONS)
TIME_MS = 1_763_712_000_000
ALWAYS = Window(0, 2 * TIME_MS)


@pytest.fixture
def broker(broker: BrokerProcess) -> BrokerProcess:
    """A broker that has the topic."""
    make_topics(broker)
    return broker


def make_topics(broker: BrokerProcess) -> None:
    ensure_topics(broker.bootstrap_servers, partitions=PARTITIONS, retention_ms=RETENTION_MS)


def events(start: int, end: int) -> list[NewEvent]:
    return [
        NewEvent(KEY.decode(), f"evt_{n}", "t", TIME_MS + n, b"x" * 1_000)
        for n in range(start, end)
    ]


def reader(broker: BrokerProcess, end: int) -> ReplayReader:
    offsets = OffsetRange(PARTITION, 0, end)
    clients = ReaderClients(broker.bootstrap_servers)
    return ReplayReader(clients, DELIVERY_LOG, offsets, key=KEY, window=ALWAYS)


def ids(read: list[LoggedEvent]) -> list[str]:
    return [event.event_id for event in read]


def read_all(broker: BrokerProcess, end: int) -> list[LoggedEvent]:
    read: list[LoggedEvent] = []
    with closing(reader(broker, end)) as source:
        while not source.is_done:
            read += source.read().events
    return read


def test_what_is_published_over_a_crash_is_there_once_and_in_order(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with EventPublisher(
            broker.bootstrap_servers, origin="here", server="test"
        ) as publisher:
            await publisher.publish(DELIVERY_LOG, events(0, 10))
            under_way = asyncio.create_task(publisher.publish(DELIVERY_LOG, events(10, 20_000)))
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.serve)
            await under_way

    asyncio.run(scenario())
    assert ids(read_all(broker, 20_000)) == [f"evt_{n}" for n in range(20_000)]


def test_a_publisher_continues_after_the_log_lost_its_producer_id(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with EventPublisher(
            broker.bootstrap_servers, origin="here", server="test"
        ) as publisher:
            for start in range(0, 50, 10):
                await publisher.publish(DELIVERY_LOG, events(start, start + 10))
            await asyncio.to_thread(broker.kill)
            shutil.rmtree(broker.data_dir)
            await asyncio.to_thread(broker.serve)
            make_topics(broker)
            await publisher.publish(DELIVERY_LOG, events(100, 103))

    asyncio.run(scenario())
    assert ids(read_all(broker, 3)) == ["evt_100", "evt_101", "evt_102"]


def test_a_reader_continues_at_its_offset_when_the_broker_returns(broker: BrokerProcess) -> None:
    async def publish() -> None:
        async with EventPublisher(
            broker.bootstrap_servers, origin="here", server="test"
        ) as publisher:
            await publisher.publish(DELIVERY_LOG, events(0, 60_000))

    asyncio.run(publish())
    read: list[LoggedEvent] = []
    with closing(reader(broker, 60_000)) as source:
        while not read:
            read += source.read().events
        broker.kill()
        while ahead := source.read().events:
            read += ahead
        broker.serve()
        while not source.is_done:
            read += source.read().events
    assert ids(read) == [f"evt_{n}" for n in range(60_000)]


def test_a_lookup_works_again_when_the_broker_returns(broker: BrokerProcess) -> None:
    history = LogHistory(broker.bootstrap_servers)
    assert history.partition_count() == PARTITIONS
    broker.kill()
    broker.serve()
    assert history.offsets_for("wh_1", ALWAYS, 0) == OffsetRange(PARTITION, 0, 0)
