import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch, OutOfOrderSequence
from logbroker.storage.domain.producer_state import (
    NOT_A_DUPLICATE,
    SEQUENCE_MAX,
    ProducerState,
    SequencedBatch,
    decode_snapshot,
    encode_snapshot,
    sequence_after,
)

NOW_MS = 1_700_000_000_000

GOLDEN = bytes.fromhex(
    # Laid out by hand from Kafka's schema; the CRC is that of kafka-python's pure Python tables.
    "0001" "1cf31285" "00000001"
    "0000000000000009" "0002" "00000005" "0000000000000069" "00000001"
    "0000018bcfe56800" "ffffffff" "ffffffffffffffff"
)  # fmt: skip


def state_with(*batches: tuple[int, int, int], epoch: int = 0) -> ProducerState:
    state = ProducerState()
    for first, last, offset in batches:
        state.record(9, epoch, SequencedBatch(first, last, offset), NOW_MS)
    state.commit()
    return state


def test_a_snapshot_has_kafkas_bytes() -> None:
    assert encode_snapshot(state_with((4, 5, 104), epoch=2).entries) == GOLDEN


@pytest.mark.parametrize("at", range(len(GOLDEN)))
def test_a_torn_or_corrupt_snapshot_is_recognised_at_every_byte(at: int) -> None:
    with pytest.raises(CorruptBatch):
        decode_snapshot(GOLDEN[:at])
    spoiled = bytearray(GOLDEN)
    spoiled[at] ^= 0xFF
    with pytest.raises(CorruptBatch):
        decode_snapshot(spoiled)


def test_all_kept_batches_survive_a_snapshot() -> None:
    state = state_with(*[(number, number, 100 + number) for number in range(7)])
    again = decode_snapshot(encode_snapshot(state.entries))
    assert again.entries == state.entries
    assert len(again.entries[9].batches) == 5
    assert again.check(9, 0, 2, 2) == 102


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    assert sequence_after(SEQUENCE_MAX, 1) == 0
    state = state_with((SEQUENCE_MAX - 1, 2, 50))
    assert state.check(9, 0, SEQUENCE_MAX - 1, 2) == 50
    assert state.check(9, 0, 3, 3) == NOT_A_DUPLICATE
    assert decode_snapshot(encode_snapshot(state.entries)).entries == state.entries
    state = state_with((SEQUENCE_MAX, SEQUENCE_MAX, 50))
    assert state.check(9, 0, 0, 0) == NOT_A_DUPLICATE


def test_a_duplicate_has_the_same_first_and_last_sequence() -> None:
    state = state_with((0, 4, 0))
    with pytest.raises(OutOfOrderSequence):
        state.check(9, 0, 0, 3)
    with pytest.raises(OutOfOrderSequence):
        state.check(9, 0, 4, 4)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20),
)
def test_undo_restores_what_was_committed(
    kept: list[tuple[int, int]], taken_back: list[tuple[int, int]]
) -> None:
    state = ProducerState()
    for number, (producer_id, epoch) in enumerate(kept):
        state.record(producer_id, epoch, SequencedBatch(number, number, number), NOW_MS)
    state.commit()
    before = dict(state.entries)
    for number, (producer_id, epoch) in enumerate(taken_back):
        state.record(producer_id, epoch, SequencedBatch(number, number, number), NOW_MS)
    state.undo()
    assert state.entries == before
