"""A member of a group while its topic is quiet: it waits for records with few requests."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from app.log.event import LoggedEvent
from app.log.group_position import Committed, GroupPosition
from app.log.group_reader import GroupReader
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import until_async

TOPIC = "quiet"
PARTITIONS = 4


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, metrics_port: int) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "log", "--metrics-port", str(metrics_port)) as broker:
        broker.serve()
        broker.make_topic(TOPIC, PARTITIONS)
        yield broker


class Member:
    """A reader and its stage, which keeps the values that it reads."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.values: list[bytes] = []
        self.partitions: set[int] = set()
        self.reader = GroupReader(broker.bootstrap_servers, TOPIC, "members", self)
        self._running = asyncio.create_task(self.reader.run())

    async def stop(self) -> None:
        self.reader.stop()
        await self._running

    async def start_partitions(self, positions: Mapping[int, GroupPosition]) -> Mapping[int, int]:
        self.partitions |= positions.keys()
        return {
            partition: bounds.low if committed is None else committed.position
            for partition, (committed, bounds) in positions.items()
        }

    def process_events(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        for partition, some in events.items():
            self.values += (event.value for event in some)
            self.reader.commit({partition: Committed(some[-1].offset + 1, "")})

    def skip_to(self, partition: int, offset: int) -> None:
        raise AssertionError(f"nothing is unreadable: {partition}, {offset}")

    async def release_partitions(self, partitions: Sequence[int]) -> Mapping[int, Committed]:
        self.partitions -= set(partitions)
        return {}

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        self.partitions -= set(partitions)


def publish(broker: BrokerProcess, value: bytes, partition: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, value, partition=partition)
    assert producer.flush() == 0


async def until_quiet(metrics_port: int) -> None:
    """Wait until members have sent more heartbeats than fetches for a while.

    Each member sends a heartbeat every second, so this does not depend on how fast anything is.
    """
    heartbeats, fetches = requests(metrics_port)

    def is_quiet() -> bool:
        nonlocal heartbeats, fetches
        now = requests(metrics_port)
        if now[0] - heartbeats < 3:
            return False
        before = heartbeats, fetches
        heartbeats, fetches = now
        return now[1] - before[1] < now[0] - before[0]

    await until_async(is_quiet, "the readers send few fetches")


def requests(metrics_port: int) -> tuple[float, float]:
    """The number of heartbeats and of fetches so far."""
    page = scrape(metrics_port)
    heartbeats, fetches = (
        page.get(f'logbroker_requests_total{{api="{api}"}}', 0.0) for api in ("Heartbeat", "Fetch")
    )
    return heartbeats, fetches


def test_a_quiet_reader_sends_few_fetches_and_reads_every_record_once(
    broker: BrokerProcess, metrics_port: int
) -> None:
    async def scenario() -> None:
        member, values = Member(broker), [b"before"]
        publish(broker, b"before", 0)
        for partition in range(2):
            await until_async(lambda: member.values == values, "the reader has all records")
            await until_quiet(metrics_port)
            values.append(b"after %d" % partition)
            publish(broker, values[-1], partition)
        await until_async(lambda: member.values == values, "the reader has all records")
        await member.stop()

    asyncio.run(scenario())


@pytest.mark.long
def test_a_quiet_reader_shares_its_partitions_and_takes_them_back(
    broker: BrokerProcess, metrics_port: int
) -> None:
    async def scenario() -> None:
        first = Member(broker)
        await until_async(lambda: len(first.partitions) == PARTITIONS, "the first has all")
        await until_quiet(metrics_port)
        second = Member(broker)
        await until_async(lambda: len(second.partitions) == PARTITIONS // 2, "the second has half")
        assert not first.partitions & second.partitions
        for partition in range(PARTITIONS):
            publish(broker, b"shared %d" % partition, partition)
        await until_async(
            lambda: len(first.values) == len(second.values) == PARTITIONS // 2, "each reads its own"
        )
        await until_quiet(metrics_port)
        await second.stop()
        await until_async(lambda: len(first.partitions) == PARTITIONS, "the first has all again")
        for partition in range(PARTITIONS):
            publish(broker, b"returned", partition)
        await until_async(
            lambda: first.values.count(b"returned") == PARTITIONS, "it reads them again"
        )
        await first.stop()

    asyncio.run(scenario())
