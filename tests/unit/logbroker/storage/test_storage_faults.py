"""Real faults: a file size limit, a full file system, no descriptors, a bad descriptor."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from logbroker.config import LogConfig
from logbroker.errors import StorageFailed, UnknownTopicOrPartition
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, create_folder, load_folder
from tests.unit.logbroker.storage.storage_content import (
    TOPIC_ID,
    OpenLog,
    append_all,
    batch,
    file_content,
    make_visible,
    values_of,
)

NOW_MS = 1_700_000_000_000


@contextlib.contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size`: the kernel answers EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def idempotent(sequence: int, size: int = 100) -> memoryview:
    return batch(b"v" * size, producer_id=9, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("room", [0, 1, 99, 1000, 30_000])
@pytest.mark.parametrize("value_bytes", [100, 3000])
def test_a_partial_write_is_undone_completely(
    new_log: OpenLog, room: int, value_bytes: int
) -> None:
    log = new_log()
    append_all(log, [idempotent(0), idempotent(1)])
    before = file_content(log.segments[0])
    with files_end_at(len(before) + room):
        for sequence in range(2, 500):
            log.append(idempotent(sequence, value_bytes), NOW_MS)
        with pytest.raises(StorageFailed, match="File too large"):
            log.write()
    assert file_content(log.segments[0]) == before
    assert log.log_end_offset == 2
    assert not log.has_staged
    # The same batches come again, at the same offsets; no duplicate, no gap.
    assert [log.append(idempotent(sequence), NOW_MS) for sequence in (1, 2, 3)] == [1, 2, 3]
    log.write()
    make_visible(log)
    assert len(values_of(log)) == 4


def test_indexes_after_a_failed_write_are_those_of_a_log_that_never_failed(
    new_log: OpenLog, folder: Path
) -> None:
    def times(start: int, count: int) -> list[memoryview]:
        return [batch(b"x" * 900, timestamps=[NOW_MS + start + one]) for one in range(count)]

    log = new_log()
    append_all(log, times(0, 20))
    with files_end_at(log.size_bytes + 15_000):
        for one in times(10**6, 30):
            log.append(one, NOW_MS)
        with pytest.raises(StorageFailed):
            log.write()
    append_all(log, times(20, 20))
    make_visible(log)
    log.close()
    failed = [(s.offset_index.items(), s.time_index.items()) for s in log.segments]
    assert log.offset_of_max_timestamp() == (NOW_MS + 39, 39, 0)
    known = KnownOffsets(0)
    again = load_folder(folder, known, NOW_MS, is_clean=False).log.segments
    assert [(s.offset_index.items(), s.time_index.items()) for s in again] == failed


def test_an_index_that_cannot_grow_undoes_the_batches_too(new_log: OpenLog, folder: Path) -> None:
    log = new_log()
    append_all(log, [batch(b"x" * 5000) for _ in range(3)])
    before = file_content(log.segments[0])
    index = folder / "00000000000000000000.index"
    # The index stands in the way of itself: a directory cannot be opened for writing.
    log.segments[0].offset_index.close()
    index.rename(kept := folder / "kept")
    index.mkdir()
    log.append(batch(b"x" * 5000), NOW_MS)
    with pytest.raises(StorageFailed, match="Is a directory"):
        log.write()
    index.rmdir()
    kept.rename(index)
    assert file_content(log.segments[0]) == before
    append_all(log, [batch(b"y")])
    make_visible(log)
    assert log.high_watermark == 4
    assert log.segments[0].time_index.count == 1


def test_reads_continue_after_a_failed_write(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a")])
    make_visible(log)
    with files_end_at(log.size_bytes):
        log.append(batch(b"b"), NOW_MS)
        with pytest.raises(StorageFailed):
            log.write()
        assert values_of(log) == [b"a"]


def test_a_failed_write_in_a_roll_fails_all_its_batches(
    new_log: OpenLog,
) -> None:
    log = new_log(segment_bytes=1024)
    append_all(log, [batch(b"a" * 300)])
    with files_end_at(log.size_bytes):
        assert log.append(batch(b"b" * 300), NOW_MS) == 1
        with pytest.raises(StorageFailed):
            log.append(batch(b"c" * 300), NOW_MS)
        # No batch may be appended after a lost one before the loss is reported.
        with pytest.raises(StorageFailed):
            log.append(batch(b"d"), NOW_MS)
        assert log.has_staged
        with pytest.raises(StorageFailed):
            log.write()
    assert log.append(batch(b"e"), NOW_MS) == 1
    log.write()


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest free descriptor is the first that is refused.
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_failed_roll_leaves_no_file_that_misleads_recovery(
    new_log: OpenLog, folder: Path, reopened: OpenLog
) -> None:
    log = new_log(segment_bytes=1024)
    append_all(log, [batch(b"a" * 400), batch(b"b" * 400)])
    with no_more_files(), pytest.raises(StorageFailed, match="Too many open files"):
        log.append(batch(b"c" * 400), NOW_MS)
    assert [path.name for path in folder.glob("*.log")] == ["00000000000000000000.log"]
    assert log.append(small := batch(b"d"), NOW_MS) == 2
    log.write()
    assert len(small) < 100
    make_visible(log)
    assert reopened(3).log_end_offset == 3


def test_a_failed_flush_ends_appends_but_not_reads(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a")])
    make_visible(log)
    append_all(log, [batch(b"b")])
    descriptor = log.segments[0].file.fileno()
    kept, (end, other_end) = os.dup(descriptor), os.pipe()
    # fdatasync of a pipe fails with EINVAL, as that of a broken disk does with EIO.
    os.dup2(other_end, descriptor)
    with pytest.raises(StorageFailed, match="flush failed"):
        log.flush()
    os.dup2(kept, descriptor)
    for spare in (kept, end, other_end):
        os.close(spare)
    with pytest.raises(StorageFailed, match="flush failed"):
        log.append(batch(b"c"), NOW_MS)
    with pytest.raises(StorageFailed, match="flush failed"):
        log.flush()
    with pytest.raises(StorageFailed, match="flush failed"):
        log.close()
    assert log.high_watermark == 1
    assert values_of(log) == [b"a"]


def test_a_deleted_log_rejects_appends_and_flushes(new_log: OpenLog) -> None:
    log = new_log()
    append_all(log, [batch(b"a")])
    log.discard()
    with pytest.raises(UnknownTopicOrPartition):
        log.append(batch(b"b"), NOW_MS)
    with pytest.raises(UnknownTopicOrPartition):
        log.flush()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB; only root may mount one."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = tmp_path / "disk"
    path.mkdir()
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=256k") != 0:
        pytest.skip(f"cannot mount a file system: {os.strerror(ctypes.get_errno())}")
    yield path
    libc.umount2(os.fsencode(path), 2)


def fill(log: PartitionLog) -> None:
    """Append until the disk refuses."""
    for number in range(1000):
        log.append(batch(b"%d" % number + b"." * 3000), NOW_MS)
        log.write()


def test_a_full_disk_is_survived(tiny_disk: Path) -> None:
    folder = tiny_disk / "events-0"
    log = PartitionLog(
        folder, "events", 0, LogConfig(segment_bytes=50_000), create_folder(folder, TOPIC_ID)
    )
    with pytest.raises(StorageFailed, match="No space left on device"):
        fill(log)
    stored = log.log_end_offset
    assert 40 < stored < 1000
    make_visible(log)
    assert len(values_of(log)) == stored
    log.config = LogConfig(segment_bytes=50_000, retention_bytes=100_000)
    for deleted in log.apply_retention(NOW_MS):
        for path in deleted.paths:
            path.unlink()
    append_all(log, [batch(b"after" + b"." * 3000)])
    make_visible(log)
    assert (values_of(log)[-1] or b"")[:5] == b"after"
    assert load_folder(folder, KnownOffsets(), NOW_MS, is_clean=False).log.end_offset == stored + 1


WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from logbroker.config import LogConfig
    from logbroker.records.record import NewRecord, encode_batch
    from logbroker.storage.log_directory import LogDirectory, Owner
    from uuid import UUID

    config = LogConfig(segment_bytes=20_000)
    directory = LogDirectory.claim(Path(sys.argv[1]))
    directory.load(lambda topic_id: Owner("events", config), 0)
    log = directory.logs.get(("events", 0)) or directory.create("events", 0, UUID(int=1), config)
    print("open", log.log_end_offset, flush=True)
    while True:
        for _ in range(3):
            offset = log.log_end_offset
            record = NewRecord(0, None, b"%d" % offset + b"." * (offset % 700))
            one = encode_batch([record], producer_id=9, producer_epoch=0, base_sequence=offset)
            log.append(memoryview(bytearray(one)), 0)
        log.write()
        log.advance_high_watermark(log.flush())
        print(log.high_watermark, flush=True)
        if log.high_watermark % 50 < 3:
            directory.write_checkpoints()
    """
)


@pytest.mark.processes
def test_a_writer_killed_again_and_again_keeps_all_it_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    for turn in range(12):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            opened = int(writer.stdout.readline().split()[1])
            assert opened >= acknowledged
            for _ in range(1 + turn * 3):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            reported = [int(line) for line in writer.stdout.read().splitlines() if line]
            acknowledged = max([acknowledged, *reported[:-1]])
    loaded = load_folder(tmp_path / "events-0", KnownOffsets(), 0, is_clean=False)
    log = PartitionLog(tmp_path / "events-0", "events", 0, LogConfig(), loaded.log)
    values = values_of(log)
    assert len(values) >= acknowledged > 0
    assert [int((value or b"").rstrip(b".")) for value in values] == list(range(len(values)))
    assert len(log.segments) > 1
