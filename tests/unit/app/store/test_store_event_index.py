"""The stored index of events: claims, chunks, and what look-ups find."""

from collections.abc import Sequence

import pytest
from sqlalchemy import func, select, update

from app.domain.event_index import EventPartition, EventPlace, encode_entry
from app.store import Store
from app.store.event_index import EventIndex
from app.store.event_index_tables import event_index_blocks, event_index_chunks

LEASE_S = 3_600.0
LOG = EventPartition(True, 3)
EVENTS = EventPartition(False, 0)


@pytest.fixture
def index(store: Store) -> EventIndex:
    return EventIndex(store.database, "here")


def entries_of(offsets: Sequence[int], partition: EventPartition = LOG) -> bytes:
    return b"".join(encode_entry(f"evt_{n}", EventPlace(partition, n)) for n in offsets)


def add(index: EventIndex, start: int, end: int) -> bool:
    claim = index.claim(LEASE_S)
    assert claim is not None
    added = index.add_chunk(claim, entries_of(range(start, end)), {LOG: end}, LEASE_S)
    index.release(claim)
    return added


def count_rows(store: Store) -> int:
    query = select(func.count()).select_from(event_index_blocks)
    return int(store.database.read(lambda connection: connection.execute(query).scalar_one()))


def test_events_are_found_in_all_chunks_of_their_data_centre(
    store: Store, index: EventIndex
) -> None:
    assert index.positions() == {}
    assert add(index, 0, 700)
    assert add(index, 700, 701)
    claim = index.claim(LEASE_S)
    assert claim is not None
    assert claim.positions == {LOG: 701}
    again = encode_entry("evt_5", EventPlace(EVENTS, 9))
    assert index.add_chunk(claim, again, {LOG: 701, EVENTS: 10}, LEASE_S)
    assert index.positions() == {LOG: 701, EVENTS: 10}
    assert index.find("evt_5") == [EventPlace(LOG, 5), EventPlace(EVENTS, 9)]
    assert index.find("evt_700") == [EventPlace(LOG, 700)]
    assert index.find("evt_701") == []
    elsewhere = EventIndex(store.database, "elsewhere")
    assert (elsewhere.find("evt_5"), elsewhere.positions(), elsewhere.chunks()) == ([], {}, [])


def test_one_process_at_a_time_has_the_index(index: EventIndex) -> None:
    first = index.claim(0.0)
    assert first is not None
    # Its lease is over.
    second = index.claim(LEASE_S)
    assert second is not None
    assert index.claim(LEASE_S) is None
    assert not index.add_chunk(first, entries_of([1]), {LOG: 2}, LEASE_S)
    index.release(first)
    assert index.claim(LEASE_S) is None
    assert (index.find("evt_1"), index.positions()) == ([], {})
    index.release(second)
    assert index.claim(LEASE_S) is not None


def test_merged_chunks_find_the_same_events(store: Store, index: EventIndex) -> None:
    for start in range(0, 1_600, 200):
        add(index, start, start + 200)
    claim = index.claim(LEASE_S)
    assert claim is not None
    assert [each.entry_count for each in index.chunks()] == [200] * 8
    lost = index.claim(LEASE_S)
    assert lost is None
    assert index.merge(claim, index.chunks(), LEASE_S)
    assert [each.entry_count for each in index.chunks()] == [1_600]
    assert count_rows(store) == 4
    for number in range(0, 1_600, 113):
        assert EventPlace(LOG, number) in index.find(f"evt_{number}")


def test_chunks_are_deleted_when_their_last_entry_has_expired(
    store: Store, index: EventIndex
) -> None:
    add(index, 0, 10)
    old = update(event_index_chunks).values(indexed_ms=1)
    store.database.write(lambda connection: connection.execute(old))
    add(index, 10, 20)
    claim = index.claim(LEASE_S)
    assert claim is not None
    assert index.delete_expired(claim, 60_000, LEASE_S)
    assert (index.find("evt_9"), index.find("evt_19")) == ([], [EventPlace(LOG, 19)])
    assert count_rows(store) == 1
    assert index.positions() == {LOG: 20}
