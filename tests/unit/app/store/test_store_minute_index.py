"""The stored minute index: ranges, entries, and what replays find."""

import pytest

from app.domain.event_index import EventPartition
from app.domain.minute_index import (
    IndexedRange,
    IndexedWindow,
    MinuteIndexUpdate,
    TimedOffset,
)
from app.domain.model import Window
from app.domain.windows import MINUTE_MS
from app.store import Store
from app.store.event_index import EventIndex

LEASE_S = 3_600.0
NEWEST = TimedOffset(7, 9 * MINUTE_MS)


@pytest.fixture
def index(store: Store) -> EventIndex:
    return EventIndex(store.database, "here")


def add(index: EventIndex, number: int, update: MinuteIndexUpdate) -> None:
    claim = index.claim(LEASE_S)
    assert claim is not None
    positions = {EventPartition(True, number): update.indexed.end}
    assert index.add_chunk(claim, b"", positions, LEASE_S, {number: update})
    index.release(claim)


def update_of(
    start: int, end: int, ends: dict[int, int], *, is_restart: bool = False
) -> MinuteIndexUpdate:
    by_ms = {minute * MINUTE_MS: each for minute, each in ends.items()}
    return MinuteIndexUpdate(IndexedRange(start, end, NEWEST), by_ms, is_restart)


def end_of(store: Store, from_ms: int, to_ms: int, number: int = 3, origin: str = "here") -> int:
    found = store.indexed_window(number, Window(from_ms, to_ms), origin=origin)
    assert found is not None
    return found.end


def test_a_window_ends_with_the_last_entry_of_its_minutes(store: Store, index: EventIndex) -> None:
    add(index, 3, update_of(0, 50, {1: 40, 2: 30, 3: 20}))
    assert store.indexed_window(3, Window(0, MINUTE_MS), origin="here") == IndexedWindow(
        0, NEWEST, 0
    )
    assert end_of(store, 0, MINUTE_MS + 1) == 40
    assert end_of(store, 2 * MINUTE_MS - 1, 2 * MINUTE_MS) == 40
    assert end_of(store, 2 * MINUTE_MS, 9 * MINUTE_MS) == 30
    assert end_of(store, 3 * MINUTE_MS, 3 * MINUTE_MS + 1) == 20
    assert end_of(store, 4 * MINUTE_MS, 9 * MINUTE_MS) == 0


def test_entries_are_of_one_partition_and_data_centre(store: Store, index: EventIndex) -> None:
    add(index, 3, update_of(0, 50, {1: 40}))
    add(index, 4, update_of(5, 60, {1: 55}))
    add(EventIndex(store.database, "there"), 3, update_of(0, 99, {1: 90}))
    window = Window(0, 9 * MINUTE_MS)
    assert [end_of(store, 0, window.to_ms, number) for number in (3, 4)] == [40, 55]
    assert end_of(store, 0, window.to_ms, origin="there") == 90
    assert store.indexed_window(5, window, origin="here") is None
    assert index.indexed_ranges() == {
        3: IndexedRange(0, 50, NEWEST),
        4: IndexedRange(5, 60, NEWEST),
    }


def test_later_records_move_the_entry_of_a_minute(store: Store, index: EventIndex) -> None:
    add(index, 3, update_of(0, 50, {1: 40, 2: 45}))
    add(index, 3, update_of(0, 80, {1: 70}))
    assert end_of(store, MINUTE_MS, 2 * MINUTE_MS) == 70
    assert end_of(store, 2 * MINUTE_MS, 3 * MINUTE_MS) == 45
    assert index.indexed_ranges() == {3: IndexedRange(0, 80, NEWEST)}


def test_entries_of_deleted_records_are_deleted(store: Store, index: EventIndex) -> None:
    add(index, 3, update_of(0, 50, {1: 40, 2: 45}))
    add(index, 3, update_of(40, 50, {}))
    assert end_of(store, MINUTE_MS, 2 * MINUTE_MS) == 0
    assert end_of(store, MINUTE_MS, 3 * MINUTE_MS) == 45


def test_a_new_range_has_no_entries_of_the_previous_one(store: Store, index: EventIndex) -> None:
    add(index, 3, update_of(0, 50, {1: 40}))
    add(index, 3, update_of(10, 30, {2: 20}, is_restart=True))
    assert end_of(store, MINUTE_MS, 2 * MINUTE_MS) == 0
    assert end_of(store, MINUTE_MS, 3 * MINUTE_MS) == 20


def test_a_range_without_records_says_nothing(store: Store, index: EventIndex) -> None:
    add(index, 3, MinuteIndexUpdate(IndexedRange(4, 4), is_restart=True))
    assert store.indexed_window(3, Window(0, MINUTE_MS), origin="here") is None
    assert index.indexed_ranges() == {3: IndexedRange(4, 4)}


def test_a_process_that_lost_the_index_adds_no_minutes(store: Store, index: EventIndex) -> None:
    lost = index.claim(0.0)
    assert lost is not None
    assert index.claim(LEASE_S) is not None
    position = {EventPartition(True, 3): 50}
    assert not index.add_chunk(lost, b"", position, LEASE_S, {3: update_of(0, 50, {1: 40})})
    assert index.indexed_ranges() == {}
