"""Entries of the index of events, their blocks, and which chunks are merged."""

import pytest

from app.domain.event_index import (
    BLOCK_ENTRIES_MAX,
    CHUNK_ENTRIES_MAX,
    MERGED_AT_ONCE,
    MERGED_ENTRIES_MAX,
    EventChunk,
    EventPartition,
    EventPlace,
    block_numbers,
    chunks_to_merge,
    count_entries,
    encode_entry,
    places_in,
    split_into_blocks,
    tag_of,
    unindexed_ranges,
)

LOG = EventPartition(True, 3)
EVENTS = EventPartition(False, 65_535)


def entries_of(count: int) -> bytes:
    return b"".join(encode_entry(f"evt_{n}", EventPlace(LOG, n)) for n in range(count))


@pytest.mark.parametrize("count", [1, 255, 256, 1_024, 20_000])
def test_an_event_is_found_in_the_only_block_that_may_have_it(count: int) -> None:
    blocks = split_into_blocks(entries_of(count))
    assert sum(map(count_entries, blocks.values())) == count
    for n in range(0, count, 97):
        tag = tag_of(f"evt_{n}")
        (number,) = set(block_numbers(tag)) & set(blocks)
        assert EventPlace(LOG, n) in places_in(blocks[number], tag)
    if count == 20_000:
        assert max(map(count_entries, blocks.values())) < 1_000


def test_places_have_the_widest_numbers() -> None:
    place = EventPlace(EVENTS, 2**47 - 1)
    entry = encode_entry("ü", place)
    assert len(entry) == 12
    assert list(places_in(entry, tag_of("ü"))) == [place]


def test_a_block_keeps_the_latest_entries_of_an_event_with_very_many_deliveries() -> None:
    count = BLOCK_ENTRIES_MAX + 10
    entries = b"".join(encode_entry("evt", EventPlace(LOG, n)) for n in range(count))
    (block,) = split_into_blocks(entries).values()
    assert len(block) <= 65_535
    assert [each.offset for each in places_in(block, tag_of("evt"))] == list(range(10, count))


def test_blocks_of_chunks_are_merged_in_their_order() -> None:
    entries = entries_of(3_000)
    merged = split_into_blocks(b"".join(split_into_blocks(entries).values()))
    assert merged == split_into_blocks(entries)


@pytest.mark.parametrize("size", [1_000, 4_300, CHUNK_ENTRIES_MAX])
def test_few_chunks_remain_however_many_are_added(size: int) -> None:
    chunks: list[EventChunk] = []
    written = 0
    for number in range(3_000_000 // size):
        chunks.append(EventChunk(number, size))
        while merged := chunks_to_merge(chunks):
            total = sum(each.entry_count for each in merged)
            assert total <= MERGED_ENTRIES_MAX
            written += total
            chunks = [each for each in chunks if each not in merged]
            chunks.append(EventChunk(merged[-1].number, total))
            chunks.sort(key=lambda each: each.number)
    total = sum(each.entry_count for each in chunks)
    assert total == 3_000_000 // size * size
    assert len(chunks) <= 4 * MERGED_AT_ONCE
    assert written <= 3 * total


def test_ranges_begin_where_the_index_and_the_log_begin() -> None:
    bounds = {EventPartition(True, n): (10, 20) for n in range(5)}
    positions = {EventPartition(True, n): at for n, at in enumerate((5, 15, 20, 99))}
    ranges = unindexed_ranges(positions, bounds)
    assert {each.number: found for each, found in ranges.items()} == {
        0: (10, 20),  # the log has deleted records that were not indexed
        1: (15, 20),
        3: (10, 20),  # the topic was recreated
        4: (10, 20),
    }
