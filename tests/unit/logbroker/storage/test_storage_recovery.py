import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.config import LogConfig
from logbroker.errors import OutOfOrderSequence
from logbroker.storage.checkpoints import LeaderEpochCheckpoint
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, create_folder, load_folder
from tests.support.property_examples import examples
from tests.unit.logbroker.storage.storage_content import (
    BASE_MS,
    TOPIC_ID,
    OpenLog,
    append_all,
    batch,
    file_content,
    headers_of,
    make_visible,
    values_of,
)

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 1024


def two_segments(new_log: OpenLog) -> PartitionLog:
    """Two segments of two batches each; values `0` to `3`."""
    log = new_log(segment_bytes=SEGMENT_BYTES)
    append_all(log, [batch(b"%d" % number + b"." * 400) for number in range(4)])
    make_visible(log)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    return log


def numbers(log: PartitionLog) -> list[int]:
    return [int((value or b"")[:1]) for value in values_of(log)]


def copy_of(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(folder, tmp_path_factory.mktemp("crash") / folder.name)


def recovered(folder: Path, recovery_point: int = 0, **known: int) -> PartitionLog:
    loaded = load_folder(folder, KnownOffsets(recovery_point, **known), NOW_MS, is_clean=False)
    return PartitionLog(folder, "events", 0, LogConfig(segment_bytes=SEGMENT_BYTES), loaded.log)


def test_a_log_is_complete_after_a_kill(new_log: OpenLog, reopened: OpenLog) -> None:
    before = two_segments(new_log)
    after = reopened()
    assert numbers(after) == [0, 1, 2, 3]
    assert after.log_end_offset == after.high_watermark == before.log_end_offset
    assert after.append(batch(b"4"), NOW_MS) == 4


def test_the_last_file_cut_at_any_byte_gives_a_prefix(
    new_log: OpenLog, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    last = two_segments(new_log).segments[1]
    one = len(file_content(last)) // 2
    for size in [*range(0, 2 * one, 37), one - 1, one, one + 1, 2 * one - 1, 2 * one]:
        crashed = copy_of(folder, tmp_path_factory)
        os.truncate(crashed / last.path.name, size)
        log = recovered(crashed)
        assert numbers(log) == [0, 1, *[2, 3][: size // one]]
        assert log.size_bytes == 2 * one + size // one * one
        assert log.append(batch(b"9"), NOW_MS) == 2 + size // one
        shutil.rmtree(crashed.parent)


def test_any_corrupt_byte_ends_the_log_there(
    new_log: OpenLog, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sizes = [header.size for header in headers_of(two_segments(new_log).segments)]
    names = ["00000000000000000000.log", "00000000000000000002.log"]
    for number, name in enumerate(names):
        for at in [*range(0, 61, 3), *range(61, sum(sizes[:2]), 43)]:
            crashed = copy_of(folder, tmp_path_factory)
            content = bytearray((crashed / name).read_bytes())
            content[at] ^= 0xFF
            (crashed / name).write_bytes(content)
            log = recovered(crashed)
            found = numbers(log)
            first_bad = 2 * number + at // sizes[0]
            assert found == list(range(first_bad))
            assert len(log.segments) == max(1, number + 1)
            assert (log.leader_epoch, LeaderEpochCheckpoint(crashed).read()) == (0, [(0, 0)])
            shutil.rmtree(crashed.parent)


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 700)), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 700)), max_size=25),
    st.data(),
)
def test_a_torn_tail_never_costs_what_was_flushed(
    tmp_path_factory: pytest.TempPathFactory,
    flushed: list[tuple[int, int]],
    unflushed: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("log") / "events-0"
    config = LogConfig(segment_bytes=3000)
    log = PartitionLog(folder, "events", 0, config, create_folder(folder, TOPIC_ID))
    append_all(log, [batch(*[os.urandom(size)] * count) for count, size in flushed])
    recovery_point = log.flush()
    durable = {segment.path.name: segment.size_bytes for segment in log.segments}
    append_all(log, [batch(*[os.urandom(size)] * count) for count, size in unflushed])
    before = headers_of(log.segments)
    # A crash may leave each file cut or garbled anywhere behind what was flushed.
    for segment in log.segments:
        content = bytearray(file_content(segment))
        kept = data.draw(st.integers(durable.get(segment.path.name, 0), len(content)))
        garbage = data.draw(st.binary(max_size=100))
        segment.path.write_bytes(content[:kept] + garbage)
        segment.offset_index.path.write_bytes(data.draw(st.binary(max_size=40)))
    again = recovered(folder, recovery_point)
    assert again.log_end_offset >= recovery_point
    after = headers_of(again.segments)
    assert after == before[: len(after)]
    assert again.high_watermark == again.log_end_offset == after[-1].next_offset


def test_rebuilt_indexes_are_those_that_were_written(new_log: OpenLog, reopened: OpenLog) -> None:
    log = new_log(segment_bytes=60_000)
    times = [BASE_MS + (number * 37) % 100 for number in range(100)]
    append_all(log, [batch(b"x" * 1500, timestamps=[time]) for time in times])
    make_visible(log)
    log.close()
    before = [(one.offset_index.items(), one.time_index.items()) for one in log.segments]
    assert len(before[0][0]) > 10
    assert len(before[0][1]) > 1
    for segment in log.segments:
        segment.offset_index.path.write_bytes(b"\xff" * 100)
        segment.time_index.path.write_bytes(b"")
    log = reopened(0)
    assert [(one.offset_index.items(), one.time_index.items()) for one in log.segments] == before


def test_a_missing_index_of_a_flushed_segment_is_rebuilt(
    new_log: OpenLog, reopened: OpenLog
) -> None:
    log = two_segments(new_log)
    log.segments[0].time_index.path.unlink()
    log = reopened(4)
    first = log.offset_for_time(BASE_MS)
    assert first is not None
    assert first.offset == 0
    assert numbers(log) == [0, 1, 2, 3]


def test_a_gap_between_segments_ends_the_log(
    new_log: OpenLog, reopened: OpenLog, folder: Path
) -> None:
    first = two_segments(new_log).segments[0]
    os.truncate(first.path, len(file_content(first)) // 2)
    log = reopened()
    assert numbers(log) == [0]
    assert not list(folder.glob("*2.*"))


def test_zeros_after_the_last_batch_are_truncated(new_log: OpenLog, reopened: OpenLog) -> None:
    segment = two_segments(new_log).segments[1]
    with segment.path.open("ab") as file:
        file.write(bytes(10_000))
    log = reopened()
    assert numbers(log) == [0, 1, 2, 3]
    assert file_content(log.segments[1]) == file_content(segment)
    assert len(file_content(segment)) < SEGMENT_BYTES


def test_a_batch_that_claims_to_be_huge_is_checked_in_bounded_memory(
    new_log: OpenLog, reopened: OpenLog
) -> None:
    log = new_log()
    append_all(log, [batch(b"x" * 900_000) for _ in range(4)])
    one = len(file_content(log.segments[0])) // 4
    with log.segments[0].path.open("r+b") as file:
        file.seek(one + 8)
        file.write((2 * one).to_bytes(4, "big"))
    assert reopened().log_end_offset == 1


def test_large_batches_are_checked_too(new_log: OpenLog, reopened: OpenLog) -> None:
    log = new_log(max_message_bytes=2**31 - 1)
    append_all(log, [batch(b"x" * 3_000_000), batch(b"y" * 5_000_000), batch(b"z" * 2_000_000)])
    with log.segments[0].path.open("r+b") as file:
        file.seek(9_000_000)
        file.write(b"!")
    assert reopened().log_end_offset == 2


def test_records_below_the_recovery_point_are_not_checked(
    new_log: OpenLog, reopened: OpenLog
) -> None:
    log = two_segments(new_log)
    with log.segments[0].path.open("r+b") as file:
        file.seek(100)
        file.write(b"!")
    assert reopened(4).log_end_offset == 4
    assert reopened(0).log_end_offset == 0


def test_a_clean_log_opens_without_reading_its_records(new_log: OpenLog, reopened: OpenLog) -> None:
    log = new_log(segment_bytes=10_000)
    append_all(log, [batch(b"x" * 900, timestamps=[BASE_MS + at]) for at in range(25)])
    log.close()
    for segment in log.segments:
        with segment.path.open("r+b") as file:
            file.seek(61 + 20)
            file.write(b"!")
    again = reopened(25, is_clean=True)
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (0, 25, 25)
    assert again.segments[-1].newest_timestamp_ms == BASE_MS + 24
    assert again.append(batch(b"y"), NOW_MS) == 25


def test_a_reopened_log_continues_its_index_and_its_roll(
    new_log: OpenLog, reopened: OpenLog, folder: Path
) -> None:
    def fill(log: PartitionLog, start: int, end: int) -> None:
        append_all(
            log, [batch(b"x" * 900, timestamps=[BASE_MS + number]) for number in range(start, end)]
        )

    log = new_log(segment_ms=35)
    fill(log, 0, 20)
    log.close()
    log = reopened(20, is_clean=True, segment_ms=35)
    fill(log, 20, 40)
    log.close()
    assert [segment.base_offset for segment in log.segments] == [0, 36]
    restarted = [segment.offset_index.items() for segment in log.segments]
    shutil.rmtree(folder)
    log = new_log(segment_ms=35)
    fill(log, 0, 40)
    log.close()
    assert [segment.offset_index.items() for segment in log.segments] == restarted


@pytest.mark.parametrize("spoil", ["checkpoint", "snapshot", "index", "tail"])
def test_a_clean_marker_is_ignored_if_the_folder_contradicts_it(
    new_log: OpenLog, folder: Path, spoil: str
) -> None:
    log = two_segments(new_log)
    log.close()
    recovery_point = 3 if spoil == "checkpoint" else 4
    if spoil == "snapshot":
        (folder / "00000000000000000004.snapshot").write_bytes(b"torn")
    if spoil == "index":
        log.segments[0].offset_index.path.unlink()
    if spoil == "tail":
        os.truncate(log.segments[1].path, 600)
    loaded = load_folder(folder, KnownOffsets(recovery_point), NOW_MS, is_clean=True)
    assert loaded.was_recovered
    assert loaded.log.end_offset == (3 if spoil == "tail" else 4)


def idempotent(sequence: int, size: int = 300) -> memoryview:
    return batch(b"v" * size, producer_id=9, producer_epoch=0, base_sequence=sequence)


def test_retries_are_detected_after_a_clean_restart(new_log: OpenLog, reopened: OpenLog) -> None:
    log = new_log()
    append_all(log, [idempotent(sequence) for sequence in range(8)])
    log.close()
    log = reopened(8, is_clean=True)
    assert [log.append(idempotent(sequence), NOW_MS) for sequence in range(3, 8)] == [3, 4, 5, 6, 7]
    assert not log.has_staged
    with pytest.raises(OutOfOrderSequence):
        log.append(idempotent(9), NOW_MS)


@pytest.mark.parametrize("recovery_point", [0, 3, 8])
@pytest.mark.parametrize("torn", [(), (6,), (2, 4, 6)])
def test_retries_are_detected_after_a_crash(
    new_log: OpenLog, reopened: OpenLog, folder: Path, recovery_point: int, torn: tuple[int, ...]
) -> None:
    log = new_log(segment_bytes=SEGMENT_BYTES)
    append_all(log, [idempotent(sequence) for sequence in range(8)])
    make_visible(log)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]
    for offset in torn:
        os.truncate(folder / f"{offset:020d}.snapshot", 20)
    log = reopened(recovery_point)
    assert [log.append(idempotent(sequence), NOW_MS) for sequence in range(3, 8)] == [3, 4, 5, 6, 7]
    assert not log.has_staged
    assert log.append(idempotent(8), NOW_MS) == 8


def test_producers_of_lost_records_may_send_them_again(new_log: OpenLog, reopened: OpenLog) -> None:
    log = new_log()
    append_all(log, [idempotent(sequence) for sequence in range(3)])
    os.truncate(log.segments[0].path, log.size_bytes - 1)
    log = reopened()
    assert log.append(idempotent(2), NOW_MS) == 2
    assert log.has_staged


def test_a_snapshot_of_a_lost_tail_is_removed(
    new_log: OpenLog, reopened: OpenLog, folder: Path
) -> None:
    log = two_segments(new_log)
    log.close()
    os.truncate(log.segments[0].path, 100)
    reopened()
    assert [path.name for path in folder.glob("*.snapshot")] == []


def test_the_log_start_survives(new_log: OpenLog, reopened: OpenLog) -> None:
    two_segments(new_log)
    log = reopened(4, log_start_offset=1)
    assert log.log_start_offset == 1
    assert numbers(log) == [1, 2, 3]


def test_a_log_without_readable_records_begins_at_its_log_start_offset(
    new_log: OpenLog, reopened: OpenLog, folder: Path
) -> None:
    log = two_segments(new_log)
    os.truncate(log.segments[1].path, 0)
    log = reopened(4, log_start_offset=3)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert [path.name for path in sorted(folder.glob("*.log"))] == ["00000000000000000003.log"]
    assert log.append(batch(b"x"), NOW_MS) == 3


def test_leftovers_of_retention_and_of_crashes_are_removed(
    new_log: OpenLog, reopened: OpenLog, folder: Path
) -> None:
    two_segments(new_log)
    for name in ("00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp"):
        (folder / name).touch()
    reopened()
    assert not list(folder.glob("*.deleted"))
    assert not list(folder.glob("*.tmp"))


def test_an_empty_folder_is_an_empty_log(folder: Path) -> None:
    folder.mkdir()
    assert recovered(folder).log_end_offset == 0
    assert LeaderEpochCheckpoint(folder).read() == [(0, 0)]


def test_epochs_come_from_the_log_when_their_file_is_lost(new_log: OpenLog, folder: Path) -> None:
    two_segments(new_log)
    path = LeaderEpochCheckpoint(folder).path
    path.unlink()
    log = recovered(folder)
    assert path.read_text() == "0\n1\n0 0\n"
    assert log.end_offset_for_epoch(0) == (0, 4)
    assert log.end_offset_for_epoch(1) == (-1, -1)


@pytest.mark.parametrize(("recovery_point", "kept"), [(0, 1), (3, 3), (4, 4)])
@pytest.mark.parametrize("epoch", [1, 2**30, -2, -(2**31)])
def test_an_unknown_epoch_ends_the_log_only_behind_what_was_flushed(
    new_log: OpenLog, folder: Path, recovery_point: int, kept: int, epoch: int
) -> None:
    log = two_segments(new_log)
    one = len(file_content(log.segments[0])) // 2
    for name, at in (("00000000000000000000.log", one), ("00000000000000000002.log", one)):
        content = bytearray((folder / name).read_bytes())
        struct.pack_into(">i", content, at + 12, epoch)
        (folder / name).write_bytes(content)
    again = recovered(folder, recovery_point)
    assert (again.log_end_offset, again.leader_epoch) == (kept, 0)
    assert LeaderEpochCheckpoint(folder).read() == [(0, 0)]


def test_an_epoch_that_goes_back_ends_the_log(new_log: OpenLog, folder: Path) -> None:
    log = two_segments(new_log)
    one = len(file_content(log.segments[0])) // 2
    path = folder / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    struct.pack_into(">i", content, 12, 5)
    path.write_bytes(content)
    LeaderEpochCheckpoint(folder).write([(0, 0), (5, 0)])
    assert recovered(folder).log_end_offset == 1
    assert len(path.read_bytes()) == one


def test_epochs_end_where_the_next_begins(new_log: OpenLog, folder: Path) -> None:
    two_segments(new_log)
    LeaderEpochCheckpoint(folder).write([(2, 1), (5, 3), (7, 9)])
    log = recovered(folder)
    assert log.leader_epoch == 5
    ends = [log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 2, 3, 5, 6)]
    assert ends == [(-1, -1), (0, 1), (2, 3), (2, 3), (5, 4), (-1, -1)]
