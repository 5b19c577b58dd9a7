"""Partition progress: a position, and metadata with the unsettled offsets below it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.partition_progress import (
    METADATA_CHARS_MAX,
    InvalidCommitMetadata,
    PartitionCommit,
    PartitionProgress,
    resume,
)

OFFSETS = st.integers(0, 2**62)


def open_after(commit: PartitionCommit, end: int) -> set[int]:
    """The offsets that a process resuming from `commit` delivers, of a log that ends at `end`."""
    progress = resume(commit)
    return {offset for offset in range(progress.read_from, end) if progress.open(offset)}


def progress_with(start: int, end: int, settled: set[int]) -> PartitionProgress:
    progress = PartitionProgress(start)
    for offset in range(start, end):
        assert progress.open(offset)
    for offset in settled:
        progress.settle(offset)
    return progress


@given(
    start=OFFSETS,
    is_open=st.lists(st.booleans(), max_size=300),
    later=st.integers(0, 20),
)
def test_after_a_crash_exactly_the_unsettled_records_are_delivered(
    start: int, is_open: list[bool], later: int
) -> None:
    end = start + len(is_open)
    settled = {start + index for index, each in enumerate(is_open) if not each}
    commit = progress_with(start, end, settled).commit()
    wanted = set(range(start, end + later)) - settled
    assert commit.position == end
    assert open_after(commit, end + later) == wanted


@given(
    start=st.integers(0, 2**40),
    gaps=st.lists(st.integers(1, 2**20), min_size=1, max_size=4_000),
    repeat=st.integers(1, 6),
)
def test_a_commit_contains_every_unsettled_offset_and_always_fits(
    start: int, gaps: list[int], repeat: int
) -> None:
    progress = PartitionProgress(start)
    offset, offsets = start, []
    for gap in gaps * repeat:
        offset += gap
        progress.open(offset)
        offsets.append(offset)
    commit = progress.commit()
    assert len(commit.metadata) <= METADATA_CHARS_MAX
    after = resume(commit)
    assert after.read_from == offsets[0]
    # Read again, or beyond the position and so not read yet.
    assert all(after.open(each) for each in offsets)


def test_the_position_is_lowered_no_further_than_needed() -> None:
    # Every other offset is open: two bytes for each, and 3,067 bytes of room.
    progress = progress_with(0, 10_000, set(range(1, 10_000, 2)))
    commit = progress.commit()
    assert 3_000 <= commit.position < 3_100
    assert len(commit.metadata) <= METADATA_CHARS_MAX


def test_a_commit_without_unsettled_offsets_has_no_metadata() -> None:
    progress = progress_with(5, 9, {5, 6, 7, 8})
    assert progress.commit() == PartitionCommit(9, "")
    progress.settle(7)
    assert progress.commit() == PartitionCommit(9, "")


def test_metadata_has_the_documented_format() -> None:
    # Open are 3, 4 and 7 of those below 9: distance 6; two open, two not, one open.
    progress = progress_with(0, 9, {0, 1, 2, 5, 6, 8})
    assert progress.commit() == PartitionCommit(9, "r1:BgICAQ")


def test_settled_and_repeated_records_are_not_opened() -> None:
    progress = resume(PartitionCommit(9, "r1:BgICAQ"))
    assert [offset for offset in range(12) if progress.open(offset)] == [3, 4, 7, 9, 10, 11]
    assert not any(progress.open(offset) for offset in range(12))
    assert progress.unsettled_count == 6


def test_unsettled_records_that_the_log_has_deleted_are_settled() -> None:
    progress = resume(PartitionCommit(9, "r1:BgICAQ"))
    progress.settle_deleted(5)
    assert progress.commit() == PartitionCommit(9, "r1:AgE")
    assert [offset for offset in range(5, 10) if progress.open(offset)] == [7, 9]


@pytest.mark.parametrize(
    "note",
    [
        "x",
        "r2:AA",
        "r1:!",
        "r1:A",
        "r1:gA",  # a varint without an end
        "r1:BgICAgICAg",  # beyond the position
        "r1:yAEB",  # before the log's first offset
    ],
)
def test_foreign_metadata_is_rejected(note: str) -> None:
    with pytest.raises(InvalidCommitMetadata):
        resume(PartitionCommit(9, note))


@given(st.text(max_size=100) | st.binary(max_size=60).map(lambda raw: "r1:" + raw.hex()))
def test_any_metadata_is_decoded_or_rejected(note: str) -> None:
    try:
        progress = resume(PartitionCommit(1_000, note))
    except InvalidCommitMetadata:
        return
    assert 0 <= progress.read_from <= 1_000


def test_skipped_offsets_are_settled_and_the_position_is_behind_them() -> None:
    progress = PartitionProgress(10, unsettled=[4, 7])
    progress.open(10)
    progress.skip_to(6)
    assert progress.unsettled_count == 2
    progress.skip_to(20)
    assert not progress.open(7)
    progress.settle(10)
    assert progress.commit() == PartitionCommit(20, "")
