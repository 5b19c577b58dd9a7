"""The door to the log while brokers crash, return, and return with nothing."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.log.event import LoggedEvent, OwedEvent
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.reader import ReplayReader
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.replay.model import OffsetRange, Window
from logbroker.client.partitioner import partition_for_key
from logbroker.embedded import EmbeddedBroker

RETENTION_MS = 6 * 86_400_000
PARTITIONS = 2
KEY = b"wh_1"
PARTITION = partition_for_key(KEY, PARTITIONS)
TIME_MS = 1_795_000_000_000
ALWAYS = Window(0, 2 * TIME_MS)


class Crashing:
    """A broker that can be killed and started again at the same place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = EmbeddedBroker(folder)
        self.servers = self._broker.start()
        ensure_topics(self.servers, partitions=PARTITIONS, retention_ms=6 * 86_400_000)

    def kill(self) -> None:
        self._broker.kill()

    def start(self) -> None:
        self._broker = EmbeddedBroker(self._folder, int(self.servers.rpartition(":")[2]))
        self._broker.start()

    def lose_everything(self) -> None:
        shutil.rmtree(self._folder)

    def close(self) -> None:
        self._broker.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Crashing]:
    with closing(Crashing(tmp_path / "log")) as broker:
        yield broker


def events(start: int, end: int) -> list[OwedEvent]:
    return [
        OwedEvent(KEY.decode(), f"evt_{n}", "t", TIME_MS + n, b"x" * 1_000)
        for n in range(start, end)
    ]


def reader(broker: Crashing, end: int) -> ReplayReader:
    offsets = OffsetRange(PARTITION, 0, end)
    return ReplayReader(broker.servers, DELIVERY_LOG, offsets, key=KEY, window=ALWAYS)


def ids(read: list[LoggedEvent]) -> list[str]:
    return [event.event_id for event in read]


def read_all(broker: Crashing, end: int) -> list[LoggedEvent]:
    read: list[LoggedEvent] = []
    with closing(reader(broker, end)) as source:
        while not source.is_done:
            read += source.read().events
    return read


def test_what_is_published_over_a_crash_is_there_once_and_in_order(broker: Crashing) -> None:
    async def scenario() -> None:
        async with EventPublisher(broker.servers, origin="here", server="test") as publisher:
            await publisher.publish(DELIVERY_LOG, events(0, 10))
            under_way = asyncio.create_task(publisher.publish(DELIVERY_LOG, events(10, 20_000)))
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await under_way

    asyncio.run(scenario())
    assert ids(read_all(broker, 20_000)) == [f"evt_{n}" for n in range(20_000)]


def test_a_publisher_goes_on_with_a_log_that_forgot_it(broker: Crashing) -> None:
    async def scenario() -> None:
        async with EventPublisher(broker.servers, origin="here", server="test") as publisher:
            for start in range(0, 50, 10):
                await publisher.publish(DELIVERY_LOG, events(start, start + 10))
            await asyncio.to_thread(broker.kill)
            broker.lose_everything()
            await asyncio.to_thread(broker.start)
            ensure_topics(broker.servers, partitions=PARTITIONS, retention_ms=6 * 86_400_000)
            await publisher.publish(DELIVERY_LOG, events(100, 103))

    asyncio.run(scenario())
    assert ids(read_all(broker, 3)) == ["evt_100", "evt_101", "evt_102"]


def test_a_reader_goes_on_where_it_was_when_the_broker_returns(broker: Crashing) -> None:
    async def publish() -> None:
        async with EventPublisher(broker.servers, origin="here", server="test") as publisher:
            await publisher.publish(DELIVERY_LOG, events(0, 60_000))

    asyncio.run(publish())
    read: list[LoggedEvent] = []
    with closing(reader(broker, 60_000)) as source:
        while not read:
            read += source.read().events
        broker.kill()
        while ahead := source.read().events:
            read += ahead
        broker.start()
        while not source.is_done:
            read += source.read().events
    assert ids(read) == [f"evt_{n}" for n in range(60_000)]


def test_a_look_up_works_again_when_the_broker_returns(broker: Crashing) -> None:
    history = LogHistory(broker.servers)
    assert history.partition_count() == PARTITIONS
    broker.kill()
    broker.start()
    assert history.offsets_for("wh_1", ALWAYS, 0) == OffsetRange(PARTITION, 0, 0)
