"""What the reader takes from a partition, and what it says when the partition has it no more."""

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest
from confluent_kafka import Producer

from app.domain.model import OffsetRange, Window
from app.log.errors import HistoryLost, LogUnavailable
from app.log.event import LoggedEvent, NewEvent
from app.log.publisher import EventPublisher
from app.log.reader import ReplayReader
from app.log.reader_clients import ReaderClients
from logbroker.client.partitioner import partition_for_key
from tests.support.processes.waiting import DEADLINE_S

KEY = b"wh_1"
PARTITION = partition_for_key(KEY, 4)
SAME_PARTITION = next(
    key for n in range(2, 99) if partition_for_key(key := f"wh_{n}".encode(), 4) == PARTITION
)
TIME_MS = 1_795_000_000_000
ALWAYS = Window(0, 2 * TIME_MS)


def publish(bootstrap_servers: str, events: Sequence[NewEvent]) -> None:
    async def scenario() -> None:
        async with EventPublisher(bootstrap_servers, origin="here", server="test") as publisher:
            await publisher.publish("deliveries", events)

    asyncio.run(scenario())


def event(number: int, key: bytes = KEY) -> NewEvent:
    body = b'{"n": %d}' % number
    return NewEvent(key.decode(), f"evt_{number}", "user.followed", TIME_MS + number, body)


def reader(
    bootstrap_servers: str,
    start: int,
    end: int,
    window: Window = ALWAYS,
    stall_s: float = 10.0,
    clients: ReaderClients | None = None,
) -> ReplayReader:
    offsets = OffsetRange(PARTITION, start, end)
    return ReplayReader(
        clients or ReaderClients(bootstrap_servers),
        "deliveries",
        offsets,
        key=KEY,
        window=window,
        stall_s=stall_s,
    )


def read_all(source: ReplayReader) -> tuple[list[LoggedEvent], int]:
    events, position = [], 0
    with closing(source):
        while not source.is_done:
            passage = source.read()
            assert passage.position >= position
            assert all(event.offset < passage.position for event in passage.events)
            events += passage.events
            position = passage.position
    return events, position


def test_events_come_as_they_were_published(foreign_broker: str) -> None:
    publish(foreign_broker, [event(7)])
    (read,), position = read_all(reader(foreign_broker, 0, 1))
    assert read == LoggedEvent(0, TIME_MS + 7, KEY, "evt_7", "user.followed", b'{"n": 7}', "here")
    assert position == 1


def test_only_the_key_and_the_window_of_the_replay_are_kept(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n, KEY if n % 3 else SAME_PARTITION) for n in range(3_000)])
    window = Window(TIME_MS + 1_000, TIME_MS + 2_000)
    events, position = read_all(reader(foreign_broker, 0, 3_000, window))
    assert [each.offset for each in events] == [n for n in range(1_000, 2_000) if n % 3]
    assert position == 3_000


@pytest.mark.parametrize("start", [0, 30, 100])
def test_offsets_of_a_gap_are_not_read(foreign_broker: str, start: int) -> None:
    count, gap = 30_000, range(30, 29_970)
    for first in range(0, count, 10_000):
        publish(foreign_broker, [event(n) for n in range(first, first + 10_000)])
    source = ReplayReader(
        ReaderClients(foreign_broker),
        "deliveries",
        OffsetRange(PARTITION, start, count - 10),
        key=KEY,
        window=ALWAYS,
    )
    source.gap = gap
    events, position = read_all(source)
    offsets = [each.offset for each in events]
    assert position == count - 10
    # The records of one read may reach into the gap.
    assert len(offsets) < 5_000
    wanted = {*range(start, 30), *range(29_970, count - 10)}
    assert wanted <= set(offsets)
    assert offsets == sorted(set(offsets))


def test_a_range_that_ends_in_a_gap_is_read_up_to_the_gap(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(100)])
    source = ReplayReader(
        ReaderClients(foreign_broker),
        "deliveries",
        OffsetRange(PARTITION, 60, 90),
        key=KEY,
        window=ALWAYS,
    )
    source.gap = range(50, 300)
    assert read_all(source) == ([], 90)


def test_the_range_is_half_open_whatever_lies_around_it(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(100)])
    events, position = read_all(reader(foreign_broker, 30, 60))
    assert [each.offset for each in events] == list(range(30, 60))
    assert position == 60


def test_a_kept_client_reads_the_range_of_the_next_replay(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(3_000)])
    with closing(ReaderClients(foreign_broker, idle_max=1)) as clients:
        kept = clients.take()
        clients.put_back(kept, is_usable=True)
        # The first leaves records behind that its client has fetched.
        with closing(reader(foreign_broker, 0, 3_000, clients=clients)) as unfinished:
            while not unfinished.read().events:
                pass
        for start, end in ((2_000, 2_010), (500, 2_500)):
            events, _ = read_all(reader(foreign_broker, start, end, clients=clients))
            assert [each.offset for each in events] == list(range(start, end))
        assert clients.take() is kept
        kept.close()


def test_the_client_of_a_failed_reader_is_not_kept(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(10)])
    with closing(ReaderClients(foreign_broker, idle_max=1)) as clients:
        kept = clients.take()
        clients.put_back(kept, is_usable=True)
        expect_end(reader(foreign_broker, 5_000, 5_010, clients=clients), HistoryLost)
        with closing(clients.take()) as other:
            assert other is not kept


def test_a_stretch_that_belongs_to_others_moves_the_position(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n, SAME_PARTITION) for n in range(50)])
    assert read_all(reader(foreign_broker, 0, 50)) == ([], 50)


@pytest.mark.parametrize("headers", [[], [("event-id", b"")], [("event-id", "tör".encode())]])
def test_a_record_without_a_usable_id_is_named_by_its_place(
    foreign_broker: str, headers: list[tuple[str, str | bytes | None]]
) -> None:
    producer = Producer({"bootstrap.servers": foreign_broker})
    producer.produce("deliveries", b"{}", KEY, PARTITION, headers=headers)
    assert producer.flush(DEADLINE_S) == 0
    (read,), _ = read_all(reader(foreign_broker, 0, 1))
    assert (read.event_id, read.event_type) == (f"deliveries-{PARTITION}-0", "")


def expect_end(source: ReplayReader, error: type[Exception]) -> str:
    def read_on() -> None:
        while not source.is_done:
            source.read()

    with closing(source), pytest.raises(error) as raised:
        read_on()
    return str(raised.value)


def test_a_log_that_ends_too_early_has_lost_something(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(10)])
    message = expect_end(reader(foreign_broker, 0, 12, stall_s=0.5), HistoryLost)
    assert message == f"deliveries-{PARTITION} ends at offset 10; expected 12 or more"


def test_an_offset_that_is_not_there_is_an_error_and_not_another_offset(
    foreign_broker: str,
) -> None:
    publish(foreign_broker, [event(n) for n in range(10)])
    message = expect_end(reader(foreign_broker, 5_000, 5_010), HistoryLost)
    assert message.startswith(f"deliveries-{PARTITION} no longer has offset 5000")


def test_a_log_that_says_nothing_is_unavailable(refused_address: str) -> None:
    message = expect_end(reader(refused_address, 0, 10, stall_s=0.5), LogUnavailable)
    assert message == f"no records of deliveries-{PARTITION} from offset 0 on for 0.5 s"
