import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.errors import FetchFailed
from logbroker.client.raw.parsing.chunk import Cut, cut_to_range
from tests.support.kafka.raw_connection import batch_of


def batch(base_offset: int, count: int) -> bytes:
    """A batch of so many records; the broker has given it its offsets."""
    return batch_of(*(b"value" for _ in range(count)), base_offset=base_offset)


def log(*sizes: int, start: int = 0) -> list[bytes]:
    """Batches of so many records, one behind the other."""
    batches = []
    for size in sizes:
        batches.append(batch(start, size))
        start += size
    return batches


def cut(batches: list[bytes], start: int, end: int) -> tuple[list[bytes], int]:
    """The batches that are kept, and the next offset."""
    content = b"".join(batches)
    found = cut_to_range(memoryview(content), start, end)
    kept = content[found.first_byte : found.end_byte]
    return [each for each in batches if each in kept], found.next_offset


def test_whole_batches_are_kept_and_counted() -> None:
    batches = log(3, 1, 4)

    assert cut(batches, 0, 100) == (batches, 8)


def test_a_range_that_begins_inside_a_batch_has_that_batch() -> None:
    batches = log(3, 3)

    assert cut(batches, 1, 100) == (batches, 6)


def test_batches_before_the_range_are_left_out() -> None:
    batches = log(3, 3, 3)

    assert cut(batches, 6, 100) == (batches[2:], 9)


def test_batches_behind_the_range_are_left_out() -> None:
    batches = log(3, 3, 3)

    assert cut(batches, 0, 4) == (batches[:2], 4)
    assert cut(batches, 0, 3) == (batches[:1], 3)


def test_a_range_that_ends_inside_the_last_batch_is_over_with_it() -> None:
    batches = log(3, 3)

    assert cut(batches, 0, 4) == (batches, 4)


def test_a_range_in_a_gap_is_over_when_the_first_batch_comes_behind_it() -> None:
    assert cut([batch(50, 3)], 10, 20) == ([], 20)


def test_gaps_between_batches_are_skipped() -> None:
    batches = [batch(10, 2), batch(50, 3)]

    assert cut(batches, 5, 100) == (batches, 53)


def test_empty_data_does_not_advance_the_offset() -> None:
    assert cut_to_range(memoryview(b""), 7, 9) == Cut(0, 0, 7)


def test_a_batch_that_is_cut_anywhere_is_left_out() -> None:
    first, second = log(3, 3)
    content = memoryview(first + second)

    for size in range(len(content)):
        whole = size >= len(first)
        expected = Cut(0, len(first), 3) if whole else Cut(0, 0, 0)
        assert cut_to_range(content[:size], 0, 100) == expected


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=6),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_what_is_kept_is_what_reaches_into_the_range(
    gaps_and_counts: list[tuple[int, int]], start: int, end: int
) -> None:
    batches: list[tuple[int, int, bytes]] = []
    base = 0
    for gap, count in gaps_and_counts:
        base += gap
        batches.append((base, base + count, batch(base, count)))
        base += count
    wanted = [each for each in batches if each[1] > start and each[0] < end]
    behind = [each for each in batches if each[0] >= end and each[1] > start]

    kept, next_offset = cut([each[2] for each in batches], start, end)

    assert kept == [each[2] for each in wanted]
    if behind and end > start:
        assert next_offset == end
    elif wanted and end > start:
        assert next_offset == min(wanted[-1][1], end)


def test_an_old_format_is_refused_by_its_number() -> None:
    old = bytearray(batch(7, 1))
    old[16] = 1

    with pytest.raises(FetchFailed, match="offset 7 has message format 1"):
        cut_to_range(memoryview(old), 7, 8)


def test_a_length_that_no_batch_has_is_refused() -> None:
    broken = bytearray(batch(0, 1))
    broken[8:12] = (48).to_bytes(4, "big")

    with pytest.raises(FetchFailed, match="malformed batch at offset 0"):
        cut_to_range(memoryview(broken), 0, 8)


@pytest.mark.parametrize(("place", "octets"), [(16, b"\x07"), (8, b"\0\0\0\x30")])
def test_batches_before_a_damaged_one_are_kept(place: int, octets: bytes) -> None:
    broken = bytearray(batch(2, 2))
    broken[place : place + len(octets)] = octets
    content = batch(0, 2) + broken

    assert cut_to_range(memoryview(content), 0, 8) == Cut(0, len(batch(0, 2)), 2)


def test_offsets_that_go_back_are_refused() -> None:
    content = b"".join([batch(5, 2), batch(6, 2)])

    with pytest.raises(FetchFailed, match="offset 6 follows offset 6"):
        cut_to_range(memoryview(content), 5, 100)
