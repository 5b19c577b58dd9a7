"""Parcels: what goes together, and what the books say of it."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from app.domain.checkpointing import DeliveryLedger, Entry
from app.domain.hours import HOUR_MS
from app.domain.model import Counts
from app.log.event import LoggedEvent
from app.replay_workers import backlog as backlog_module
from app.replay_workers.backlog import Backlog, Consignment
from app.replay_workers.packing import BYTES_MAX, Packed, Packer

RECORDS = st.lists(st.sampled_from("ed-") | st.just("e"), max_size=60)
"""What a record is: an event, a duplicate, or nothing of ours."""


def event(offset: int, size: int = 2) -> LoggedEvent:
    return LoggedEvent(offset, offset // 4 * HOUR_MS, b"wh", f"evt_{offset}", "t", b"x" * size)


def pack(packer: Packer, kinds: list[str], start: int = 0) -> Packed:
    for offset, kind in enumerate(kinds, start):
        if kind == "e":
            packer.add(event(offset))
        elif kind == "d":
            packer.duplicate(event(offset))
    return packer.take(start + len(kinds))


class Books:
    """A ledger that is looked into after every step."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.entries: list[Entry] = []
        self.ledger = DeliveryLedger(0, Counts())

    def book(self, packed: Packed) -> None:
        for parcel in packed.parcels:
            if parcel.duplicates_before:
                self.ledger.duplicate(parcel.start, parcel.duplicates_before)
            self.entries.append(
                self.ledger.open(parcel.start, parcel.end, parcel.hours, parcel.duplicates)
            )
            self.check()
        if packed.duplicates:
            self.ledger.duplicate(packed.position, packed.duplicates)
        self.ledger.read_to(packed.position)
        self.check()

    def settle(self, index: int) -> None:
        if self.entries:
            entry = self.entries.pop(index % len(self.entries))
            self.ledger.settle(entry, {200: entry.events})
            self.check()

    def check(self) -> None:
        checkpoint = self.ledger.checkpoint()
        below = self.kinds[: checkpoint.offset]
        assert checkpoint.counts == Counts(below.count("e"), below.count("d"), 0)
        told = [(n // 4, kind) for n, kind in enumerate(below) if kind != "-"]
        assert checkpoint.hours == {
            hour: Counts(told.count((hour, "e")), told.count((hour, "d")), 0)
            for hour in {hour for hour, _ in told}
        }


@given(
    st.lists(st.tuples(RECORDS, st.lists(st.integers(0, 99), max_size=5)), max_size=6),
    st.integers(1, 7),
)
def test_the_books_are_right_wherever_a_checkpoint_is_taken(
    passages: list[tuple[list[str], list[int]]], events_max: int
) -> None:
    """Records are packed and booked passage by passage, and settled in any order in between."""
    packer, books = Packer(events_max), Books()
    for passage, settled in passages:
        packed = pack(packer, passage, len(books.kinds))
        assert all(1 <= len(parcel.events) <= events_max for parcel in packed.parcels)
        books.kinds += passage
        books.book(packed)
        for index in settled:
            books.settle(index)
    packer.close()
    books.book(packer.take(len(books.kinds)))
    while books.entries:
        books.settle(0)
    assert books.ledger.checkpoint().offset == len(books.kinds)


def test_a_parcel_that_is_begun_holds_the_position_back() -> None:
    packer = Packer(3)
    packed = pack(packer, ["e", "e", "e", "-", "e", "d", "-"])
    assert [[each.offset for each in parcel.events] for parcel in packed.parcels] == [[0, 1, 2]]
    assert (packed.position, packed.duplicates) == (4, {})
    assert packer.is_filling
    packer.close()
    (rest,) = packer.take(7).parcels
    assert (rest.start, rest.end, rest.hours, rest.duplicates) == (4, 6, {1: 1}, {1: 1})


def test_bytes_bound_a_parcel_but_not_an_event() -> None:
    packer = Packer(100)
    for offset, size in enumerate([BYTES_MAX // 2, BYTES_MAX // 2, 2 * BYTES_MAX, 10]):
        packer.add(event(offset, size))
    packer.close()
    assert [len(parcel.events) for parcel in packer.take(4).parcels] == [1, 1, 1, 1]


def test_what_is_read_waits_until_enough_is_delivered() -> None:
    async def scenario() -> None:
        ledger = DeliveryLedger(0, Counts())
        backlog = Backlog(ledger, couriers=1, parcel_events=1)
        packer = Packer(1)
        size = backlog_module.BYTES_MAX // 4
        for offset in range(6):
            packer.add(event(offset, size))
        reading = asyncio.create_task(backlog.take_in(packer.take(6)))
        taken: list[Consignment] = []
        while len(taken) < 3:  # a fourth would be over by its comma
            consignment = await backlog.next()
            assert consignment is not None
            taken.append(consignment)
        await asyncio.sleep(0)
        assert not reading.done()
        assert ledger.ahead == 3
        for consignment in taken:
            backlog.settle(consignment, {200: 1}, ())
        await asyncio.wait_for(reading, 10)
        assert ledger.ahead == 3

    asyncio.run(scenario())


def test_one_event_larger_than_the_bound_is_let_in_alone() -> None:
    async def scenario() -> None:
        ledger = DeliveryLedger(0, Counts())
        backlog = Backlog(ledger, couriers=1, parcel_events=1)
        packer = Packer(1)
        packer.add(event(0, 2 * backlog_module.BYTES_MAX))
        await asyncio.wait_for(backlog.take_in(packer.take(1)), 10)
        assert ledger.ahead == 1

    asyncio.run(scenario())
