"""The index that finds the records of an event in the log by the event's id.

An entry is 12 bytes, big-endian: the tag of an event id (a hash of four bytes), and the place of a
record with this id in eight: one bit for the topic, 16 for the partition, 47 for the offset.
Different ids may have the same tag, so readers of a record compare its id.

Entries are stored in chunks, and a chunk in blocks: a block has the entries whose tags begin with
the same bits. The number of a block is a one followed by these bits. So a chunk has one block for
a tag, and the numbers of all blocks that may have it are known in advance.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import Final, NamedTuple

CHUNK_ENTRIES_MAX: Final = 16_000
"""Entries of a new chunk."""

MERGED_ENTRIES_MAX: Final = 2**20
"""Entries of a chunk that is merged from others: 12 MB, which one transaction writes."""

MERGED_AT_ONCE: Final = 8

_MERGED_AT_LEAST: Final = 4
"""Merging fewer chunks writes all of their entries for little."""

BLOCK_ENTRIES_MAX: Final = 5_000
"""An event that is addressed to more webhooks fills a block; MySQL's BLOB has 65,535 bytes."""

_BLOCK_ENTRIES: Final = 256
"""Entries of a block, or up to twice as many, while a chunk has them."""

_PREFIX_BITS_MAX: Final = 12

_ENTRY: Final = struct.Struct(">IQ")
_TAG_BITS: Final = 32
_PARTITION_BITS: Final = 16
_OFFSET_BITS: Final = 47
_SIZE_CLASS: Final = 1_024


class EventPartition(NamedTuple):
    """A partition of `delivery_log`, or of `events`."""

    is_delivery_log: bool
    number: int


class EventPlace(NamedTuple):
    """The place of a record of an event."""

    partition: EventPartition
    offset: int


@dataclass(frozen=True, slots=True)
class EventIndexClaim:
    """The right to change the index of a data centre, until another process has a later epoch.

    `positions` are the offsets below which records are indexed.
    """

    origin: str
    epoch: int
    positions: Mapping[EventPartition, int]


@dataclass(frozen=True, slots=True)
class EventChunk:
    """A stored part of the index."""

    number: int
    entry_count: int


def tag_of(event_id: str) -> int:
    """The tag of an event id."""
    return int.from_bytes(blake2b(event_id.encode(), digest_size=_TAG_BITS // 8).digest())


def encode_entry(event_id: str, place: EventPlace) -> bytes:
    """The entry of a record with this event id."""
    partition, offset = place
    number = partition.is_delivery_log << _PARTITION_BITS | partition.number
    return _ENTRY.pack(tag_of(event_id), number << _OFFSET_BITS | offset)


def count_entries(entries: bytes | bytearray) -> int:
    """The number of entries."""
    return len(entries) // _ENTRY.size


def split_into_blocks(entries: bytes | bytearray) -> dict[int, bytes]:
    """The blocks of a chunk with these entries, by number. The order of entries stays.

    Of more than `BLOCK_ENTRIES_MAX` entries in a block, the last ones are kept.
    """
    bits = min(
        _PREFIX_BITS_MAX, max(0, (count_entries(entries) // _BLOCK_ENTRIES).bit_length() - 1)
    )
    blocks: defaultdict[int, bytearray] = defaultdict(bytearray)
    first, shift = 1 << bits, _TAG_BITS - bits
    for tag, place in _ENTRY.iter_unpack(entries):
        blocks[first | tag >> shift] += _ENTRY.pack(tag, place)
    bytes_max = BLOCK_ENTRIES_MAX * _ENTRY.size
    return {number: bytes(block[-bytes_max:]) for number, block in blocks.items()}


def block_numbers(tag: int) -> list[int]:
    """The numbers of all blocks that may have entries with this tag."""
    return [1 << bits | tag >> (_TAG_BITS - bits) for bits in range(_PREFIX_BITS_MAX + 1)]


def places_in(block: bytes, tag: int) -> Iterator[EventPlace]:
    """The places of the entries with this tag."""
    for found, place in _ENTRY.iter_unpack(block):
        if found == tag:
            number, offset = place >> _OFFSET_BITS, place & (1 << _OFFSET_BITS) - 1
            is_delivery_log = bool(number >> _PARTITION_BITS)
            yield EventPlace(
                EventPartition(is_delivery_log, number & (1 << _PARTITION_BITS) - 1), offset
            )


def chunks_to_merge(chunks: Sequence[EventChunk]) -> list[EventChunk]:
    """The chunks that should become one: the oldest of about the same size, the smallest first.

    `chunks` are in the order of their numbers. So the number of chunks grows with the logarithm of
    the entries, until they have `MERGED_ENTRIES_MAX`.
    """
    by_size: defaultdict[int, list[EventChunk]] = defaultdict(list)
    for chunk in chunks:
        # A class has chunks of up to eight times the size.
        by_size[(chunk.entry_count // _SIZE_CLASS).bit_length() // 3].append(chunk)
    for size in sorted(by_size):
        of_size = by_size[size]
        sums = accumulate(each.entry_count for each in of_size[:MERGED_AT_ONCE])
        fitting = sum(total <= MERGED_ENTRIES_MAX for total in sums)
        if len(of_size) >= MERGED_AT_ONCE and fitting >= _MERGED_AT_LEAST:
            return of_size[:fitting]
    return []


def unindexed_ranges(
    positions: Mapping[EventPartition, int], bounds: Mapping[EventPartition, tuple[int, int]]
) -> dict[EventPartition, tuple[int, int]]:
    """The offsets `[start, end)` of each partition that are not indexed, without empty ranges.

    A position above the end is of a topic that was recreated, so all of its records are new.
    """
    ranges = {}
    for partition, (low, high) in bounds.items():
        position = positions.get(partition, low)
        start = low if position > high else max(low, position)
        if start < high:
            ranges[partition] = (start, high)
    return ranges
