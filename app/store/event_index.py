"""The tables of the index of events: chunks of entries, and which records are indexed.

One process at a time changes the index of a data centre: it claims it, and every change names the
epoch of the claim. A chunk is stored in the same transaction as the positions that it reaches, so a
record is indexed exactly once, whichever process dies. So are the minutes of its records.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, update

from app.domain.event_index import (
    EventChunk,
    EventIndexClaim,
    EventPartition,
    EventPlace,
    block_numbers,
    count_entries,
    places_in,
    split_into_blocks,
    tag_of,
)
from app.domain.minute_index import IndexedRange, MinuteIndexUpdate
from app.store.engine import Database
from app.store.event_index_tables import event_index_blocks as blocks
from app.store.event_index_tables import event_index_chunks as chunks
from app.store.event_index_tables import event_index_states as states
from app.store.minute_index import read_indexed_ranges, store_minutes
from app.store.sql import ms_from_now, now_ms

_BLOCKS_PER_INSERT: Final = 100
"""With the longest blocks, a statement has 6 MB: less than MySQL's limit of a packet."""

_EXPIRED_PER_CALL: Final = 20


class EventIndex:
    """The index of the events in the log of one data centre. Thread-safe; a call is a transaction.

    Methods that take a claim return False if another process has claimed the index since.
    """

    def __init__(self, database: Database, origin: str) -> None:
        self._database = database
        self._origin = origin

    def positions(self) -> Mapping[EventPartition, int]:
        """The offsets below which records are indexed; none of partitions that are not."""
        return self._database.read(_read_positions, self._origin)

    def find(self, event_id: str) -> list[EventPlace]:
        """The places of records that may have this event id, in the order of indexing.

        Read `positions` first: what is indexed between the two is found twice, not missed.
        """
        return self._database.read(_find_places, self._origin, tag_of(event_id))

    def claim(self, lease_s: float) -> EventIndexClaim | None:
        """Claim the index for `lease_s`; None while another process has it."""
        return self._database.write(_claim, self._origin, lease_s)

    def release(self, claim: EventIndexClaim) -> None:
        """End a claim before its lease."""
        self._database.write(_extend, claim, 0)

    def indexed_ranges(self) -> dict[int, IndexedRange]:
        """The offsets of each partition of `delivery_log` that the minute index has."""
        return self._database.read(read_indexed_ranges, self._origin)

    def add_chunk(
        self,
        claim: EventIndexClaim,
        entries: bytes | bytearray,
        positions: Mapping[EventPartition, int],
        lease_s: float,
        minutes: Mapping[int, MinuteIndexUpdate] = {},
    ) -> bool:
        """Store a chunk, and that records below `positions` are indexed; extends the claim.

        `minutes` are the updates of the minute index, by partition of `delivery_log`.
        """
        return self._database.write(
            _add_chunk,
            claim,
            split_into_blocks(entries),
            count_entries(entries),
            positions,
            lease_s,
            minutes,
        )

    def chunks(self) -> list[EventChunk]:
        """All chunks, in the order of their numbers."""
        return self._database.read(_list_chunks, self._origin)

    def merge(self, claim: EventIndexClaim, merged: Sequence[EventChunk], lease_s: float) -> bool:
        """Replace chunks by one with all of their entries; extends the claim."""
        numbers = [each.number for each in merged]
        entries = self._database.read(_read_entries, numbers)
        return self._database.write(
            _merge, claim, numbers, split_into_blocks(entries), count_entries(entries), lease_s
        )

    def delete_expired(self, claim: EventIndexClaim, kept_ms: int, lease_s: float) -> bool:
        """Delete some chunks whose last entry is older than `kept_ms`; extends the claim."""
        return self._database.write(_delete_expired, claim, kept_ms, lease_s)


def _read_positions(connection: Connection, origin: str) -> dict[EventPartition, int]:
    query = select(states.c.positions).where(states.c.origin == origin)
    return _decode_positions(connection.execute(query).scalar() or "[]")


def _decode_positions(text: str) -> dict[EventPartition, int]:
    return {
        EventPartition(bool(is_delivery_log), number): position
        for is_delivery_log, number, position in json.loads(text)
    }


def _encode_positions(positions: Mapping[EventPartition, int]) -> str:
    rows = [
        (int(partition.is_delivery_log), partition.number, position)
        for partition, position in sorted(positions.items())
    ]
    return json.dumps(rows, separators=(",", ":"))


def _find_places(connection: Connection, origin: str, tag: int) -> list[EventPlace]:
    query = (
        select(blocks.c.entries)
        .join(chunks, chunks.c.id == blocks.c.chunk_id)
        .where(blocks.c.number.in_(block_numbers(tag)), chunks.c.origin == origin)
        .order_by(chunks.c.id)
    )
    return [
        place
        for entries in connection.execute(query).scalars()
        for place in places_in(entries, tag)
    ]


def _claim(connection: Connection, origin: str, lease_s: float) -> EventIndexClaim | None:
    row = connection.execute(
        select(states.c.epoch, states.c.positions).where(states.c.origin == origin)
    ).first()
    if row is None:
        # If another process inserts it first, the transaction runs again.
        values = {"epoch": 1, "claimed_until_ms": ms_from_now(lease_s), "positions": "[]"}
        connection.execute(insert(states).values(origin=origin, **values))
        return EventIndexClaim(origin, 1, {})
    taken = update(states).where(
        states.c.origin == origin,
        states.c.epoch == row.epoch,
        states.c.claimed_until_ms <= now_ms(),
    )
    changed = {"epoch": row.epoch + 1, "claimed_until_ms": ms_from_now(lease_s)}
    if not connection.execute(taken.values(changed)).rowcount:
        return None
    return EventIndexClaim(origin, row.epoch + 1, _decode_positions(row.positions))


def _extend(
    connection: Connection, /, claim: EventIndexClaim, lease_s: float, **values: object
) -> bool:
    """Extend a claim and set columns of its row, which stays locked; False if it is lost."""
    held = update(states).where(states.c.origin == claim.origin, states.c.epoch == claim.epoch)
    changed = held.values(claimed_until_ms=ms_from_now(lease_s), **values)
    return connection.execute(changed).rowcount > 0


def _add_chunk(
    connection: Connection,
    claim: EventIndexClaim,
    new: Mapping[int, bytes],
    entry_count: int,
    positions: Mapping[EventPartition, int],
    lease_s: float,
    minutes: Mapping[int, MinuteIndexUpdate],
) -> bool:
    if not _extend(connection, claim, lease_s, positions=_encode_positions(positions)):
        return False
    store_minutes(connection, claim.origin, minutes)
    if entry_count:
        indexed_ms = int(connection.execute(select(now_ms())).scalar_one())
        _insert_chunk(connection, claim.origin, new, entry_count, indexed_ms)
    return True


def _insert_chunk(
    connection: Connection,
    origin: str,
    new: Mapping[int, bytes],
    entry_count: int,
    indexed_ms: int,
) -> None:
    values = {"origin": origin, "entry_count": entry_count, "indexed_ms": indexed_ms}
    key = connection.execute(insert(chunks).values(values)).inserted_primary_key
    assert key is not None
    rows = [
        {"number": number, "chunk_id": key[0], "entries": entries}
        for number, entries in sorted(new.items())
    ]
    for start in range(0, len(rows), _BLOCKS_PER_INSERT):
        connection.execute(insert(blocks), rows[start : start + _BLOCKS_PER_INSERT])


def _list_chunks(connection: Connection, origin: str) -> list[EventChunk]:
    query = (
        select(chunks.c.id, chunks.c.entry_count)
        .where(chunks.c.origin == origin)
        .order_by(chunks.c.id)
    )
    return [EventChunk(row.id, row.entry_count) for row in connection.execute(query)]


def _read_entries(connection: Connection, numbers: Collection[int]) -> bytes:
    query = (
        select(blocks.c.entries)
        .where(blocks.c.chunk_id.in_(numbers))
        .order_by(blocks.c.chunk_id, blocks.c.number)
    )
    return b"".join(connection.execute(query).scalars())


def _merge(
    connection: Connection,
    claim: EventIndexClaim,
    numbers: Collection[int],
    new: Mapping[int, bytes],
    entry_count: int,
    lease_s: float,
) -> bool:
    if not _extend(connection, claim, lease_s):
        return False
    last_ms = select(func.max(chunks.c.indexed_ms)).where(chunks.c.id.in_(numbers))
    indexed_ms = int(connection.execute(last_ms).scalar_one())
    _delete_chunks(connection, numbers)
    _insert_chunk(connection, claim.origin, new, entry_count, indexed_ms)
    return True


def _delete_chunks(connection: Connection, numbers: Iterable[int]) -> None:
    ids = list(numbers)
    connection.execute(delete(blocks).where(blocks.c.chunk_id.in_(ids)))
    connection.execute(delete(chunks).where(chunks.c.id.in_(ids)))


def _delete_expired(
    connection: Connection, claim: EventIndexClaim, kept_ms: int, lease_s: float
) -> bool:
    if not _extend(connection, claim, lease_s):
        return False
    query = (
        select(chunks.c.id)
        .where(chunks.c.origin == claim.origin, chunks.c.indexed_ms < now_ms() - kept_ms)
        .order_by(chunks.c.id)
        .limit(_EXPIRED_PER_CALL)
    )
    if expired := connection.execute(query).scalars().all():
        _delete_chunks(connection, expired)
    return True
