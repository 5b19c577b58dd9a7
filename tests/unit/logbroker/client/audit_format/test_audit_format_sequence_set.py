import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.audit_format.mark import SEQUENCE_MAX
from logbroker.client.audit_format.sequence_set import (
    PAGE_SEQUENCES,
    PAGES_MAX,
    PART_PAGES_MAX,
    SequenceSet,
)

PAGE = 4_096

sequences = st.one_of(
    st.integers(0, 20),
    st.integers(PAGE - 3, PAGE + 3),
    st.integers(SEQUENCE_MAX - 2, SEQUENCE_MAX),
    st.integers(0, SEQUENCE_MAX),
)
sets = st.sets(sequences, max_size=30)
spans = st.tuples(st.integers(0, 3 * PAGE), st.integers(0, 2 * PAGE))


def text_of(*pages: tuple[int, bytes]) -> str:
    stored = b"".join(number.to_bytes(2) + bits.ljust(512, b"\0") for number, bits in pages)
    return base64.b64encode(zlib.compress(stored)).decode()


def test_add_returns_whether_a_number_is_new() -> None:
    numbers = SequenceSet()
    assert [numbers.add(each) for each in (7, 4_096, 7, SEQUENCE_MAX, 0, 4_096)] == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert list(numbers) == [0, 7, 4_096, SEQUENCE_MAX]
    assert len(numbers) == 4
    assert 7 in numbers
    assert 8 not in numbers
    assert 2 * PAGE not in numbers


@given(sets, sets)
def test_the_arithmetic_is_that_of_sets(one: set[int], other: set[int]) -> None:
    left, right = SequenceSet(one), SequenceSet(other)
    assert set(left.union(right)) == one | other
    assert set(left.difference(right)) == one - other
    assert left.difference_count(right) == len(one - other)
    assert left.difference(right) == SequenceSet(one - other)
    assert bool(left.difference(right)) == bool(one - other)
    assert (left, right) == (SequenceSet(one), SequenceSet(other)), "neither has changed"
    left.update(right)
    assert list(left) == sorted(one | other)
    assert len(left) == len(one | other)
    left.add(1)
    assert 1 not in right or 1 in other, "nothing of the one is shared with the other"


@given(sets, spans)
def test_a_range_is_added_as_its_numbers(before: set[int], span: tuple[int, int]) -> None:
    start, length = span
    numbers = SequenceSet(before)
    added = set(range(start, start + length))
    assert numbers.add_range(start, start + length) == bool(added - before)
    assert numbers == SequenceSet(before | added)


@given(sets)
def test_a_set_round_trips_through_its_text(numbers: set[int]) -> None:
    text = SequenceSet(numbers).encode()
    assert SequenceSet.decode(text) == SequenceSet(numbers)
    assert SequenceSet(sorted(numbers, reverse=True)).encode() == text


def test_the_text_is_as_documented() -> None:
    text = text_of((0, b"\x82"), (2, b"\0\x01"))
    assert list(SequenceSet.decode(text)) == [1, 7, 2 * PAGE + 8]
    stored = zlib.decompress(base64.b64decode(SequenceSet([1, 7, 2 * PAGE + 8]).encode()))
    assert stored == zlib.decompress(base64.b64decode(text))


def test_a_full_set_is_small_and_an_incompressible_one_has_bounded_parts() -> None:
    full = SequenceSet()
    full.add_range(0, SEQUENCE_MAX + 1)
    assert full.pages == PAGES_MAX
    assert len(full.encode()) < 40_000
    assert len(SequenceSet.decode(full.encode())) == SEQUENCE_MAX + 1

    chance = random.Random(7)
    pages = ((number, chance.randbytes(512)) for number in range(PART_PAGES_MAX + 1))
    mixed = SequenceSet.decode(text_of(*pages))
    first, second = mixed.parts()
    assert (first.pages, second.pages) == (PART_PAGES_MAX, 1)
    assert len(first.encode()) < 360_000
    assert first.union(second) == mixed
    assert not list(SequenceSet().parts())


def test_a_bomb_is_not_expanded() -> None:
    bomb = zlib.compress(bytes(200_000_000), 9)
    with pytest.raises(ValueError, match="too large"):
        SequenceSet.decode(base64.b64encode(bomb).decode())
    with pytest.raises(ValueError, match="characters"):
        SequenceSet.decode("A" * 4_000_000)


def test_no_more_pages_are_read_than_asked_for() -> None:
    text = SequenceSet([1, PAGE, 2 * PAGE]).encode()
    assert len(SequenceSet.decode(text, pages_max=3)) == 3
    with pytest.raises(ValueError, match="too large"):
        SequenceSet.decode(text, pages_max=2)


WHOLE = text_of((0, b"\x01"))
REFUSED = {
    "no base64": "?" + WHOLE[1:],
    "not of ASCII": "é" + WHOLE[1:],
    "a line's end": WHOLE + "\n",
    "nothing": "",
    "not compressed": base64.b64encode(b"plain bits").decode(),
    "more behind the stream": base64.b64encode(base64.b64decode(WHOLE) + b"x").decode(),
    "half a page": base64.b64encode(zlib.compress(b"\0\0\1")).decode(),
    "an empty page": text_of((0, b"\1"), (1, b"")),
    "a page twice": text_of((1, b"\1"), (1, b"\2")),
    "not ascending": text_of((1, b"\1"), (0, b"\1")),
    "beyond the last page": text_of((PAGES_MAX, b"\1")),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_an_invalid_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        SequenceSet.decode(text)


def test_a_truncated_text_is_rejected() -> None:
    packed = base64.b64decode(SequenceSet(range(0, 10_000, 3)).encode())
    for end in range(len(packed)):
        with pytest.raises(ValueError, match="set"):
            SequenceSet.decode(base64.b64encode(packed[:end]).decode())


@given(sequences=st.sets(st.integers(0, 100_000)), pages=st.integers(1, 9))
def test_blocks_have_the_bits_of_all_pages_lowest_first(sequences: set[int], pages: int) -> None:
    block_bits = pages * PAGE_SEQUENCES
    found = {
        number * block_bits + place * 8 + bit
        for number, bits in SequenceSet(sequences).blocks(pages)
        for place, byte in enumerate(bits)
        for bit in range(8)
        if byte >> bit & 1
    }
    assert found == sequences
    assert all(len(bits) * 8 == block_bits for _, bits in SequenceSet(sequences).blocks(pages))
