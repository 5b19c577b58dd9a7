"""Loads the log of a partition's folder, and recovers it after an unclean shutdown."""

import re
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from logbroker.errors import CorruptBatch
from logbroker.records.batch import BatchHeader
from logbroker.storage.batch_scan import intact_headers
from logbroker.storage.checkpoints import (
    FIRST_EPOCH,
    LAST_EPOCH,
    LeaderEpochCheckpoint,
    LeaderEpochs,
)
from logbroker.storage.cleaned_segment import complete_swaps
from logbroker.storage.domain.producer_state import ProducerState, decode_snapshot
from logbroker.storage.file_writes import sync_directory
from logbroker.storage.identity import write_topic_id
from logbroker.storage.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    LogSegment,
)

PENDING_ENTRIES_MAX: Final = 1024
"""Index entries collected in memory while an index is rebuilt."""

_OFFSET_NAME: Final = re.compile(r"\d{20}")


class LoadedLog(NamedTuple):
    """A consistent log on the disk, with which `PartitionLog` is opened."""

    segments: tuple[LogSegment, ...]
    start_offset: int
    end_offset: int
    producers: ProducerState
    epochs: LeaderEpochs
    is_closed: bool
    """Whether the files of a clean close exist, until a record is appended."""


class KnownOffsets(NamedTuple):
    """The checkpointed offsets of one partition."""

    recovery_point: int = 0
    log_start_offset: int = 0
    dense_from: int = 0
    """Compaction may have removed batches below this offset, and none from it on."""


class Loaded(NamedTuple):
    """A loaded log, and the result of its recovery."""

    log: LoadedLog
    was_recovered: bool
    dropped_bytes: int


def create_folder(folder: Path, topic_id: UUID) -> LoadedLog:
    """Create an empty log at offset 0; its folder and first files are durable."""
    folder.mkdir()
    try:
        # The first file, so that a folder with records has a topic id.
        write_topic_id(folder, topic_id)
        return _create_log(folder, 0)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def load_folder(folder: Path, known: KnownOffsets, now_ms: int, *, is_clean: bool) -> Loaded:
    """Load the log of a folder, with recovery if it was not closed cleanly.

    Of a cleanly closed log only a few headers are read. Otherwise every segment with offsets
    above the recovery point is checked from its first batch. The first batch that is not intact
    ends the log; all bytes from there on are dropped. Indexes, producers and epochs are rebuilt
    and durable when the function returns.

    Source: Kafka, `LogLoader.java`.
    """
    segments = _segments_in(folder, now_ms)
    if segments and is_clean:
        closed = _load_closed(folder, segments, known)
        if closed is not None:
            return Loaded(closed, was_recovered=False, dropped_bytes=0)
    if not segments:
        return Loaded(_create_log(folder, known.log_start_offset), True, 0)
    return _recover(folder, segments, known, now_ms)


def _create_log(folder: Path, offset: int) -> LoadedLog:
    segment = LogSegment.create(folder, offset)
    epochs = LeaderEpochs([(FIRST_EPOCH, offset)])
    # The last write, since it syncs the folder.
    LeaderEpochCheckpoint(folder).write(epochs.starts)
    sync_directory(folder.parent)
    # An empty log at 0 needs no producer snapshot.
    return LoadedLog((segment,), offset, offset, ProducerState(), epochs, is_closed=offset == 0)


def _segments_in(folder: Path, now_ms: int) -> list[LogSegment]:
    """Return the segments of a folder in order; removes `*.deleted` and temporary files.

    Replacements by compaction are completed or undone first.
    """
    complete_swaps(folder)
    for path in folder.iterdir():
        if path.suffix in {DELETED_SUFFIX, ".tmp"}:
            path.unlink()
    logs = sorted(
        path for path in folder.glob(f"*{LOG_SUFFIX}") if _OFFSET_NAME.fullmatch(path.stem)
    )
    return [LogSegment(folder, int(path.stem), path.stat().st_size, now_ms) for path in logs]


def _load_closed(folder: Path, segments: list[LogSegment], known: KnownOffsets) -> LoadedLog | None:
    """Load a cleanly closed log; returns None if its files are inconsistent."""
    active = segments[-1]
    if not all(_has_indexes(segment) for segment in segments):
        return None
    try:
        end_offset = active.resume()
        snapshot = _snapshots(folder)[end_offset].read_bytes() if end_offset else None
        producers = decode_snapshot(snapshot) if snapshot is not None else ProducerState()
    except (CorruptBatch, KeyError):
        return None
    start_offset = max(known.log_start_offset, segments[0].base_offset)
    epochs = LeaderEpochs(LeaderEpochCheckpoint(folder).read())
    if end_offset != known.recovery_point or start_offset > end_offset or not epochs.starts:
        return None
    _drop_snapshots(folder, {end_offset, *(segment.base_offset for segment in segments)})
    return LoadedLog(tuple(segments), start_offset, end_offset, producers, epochs, is_closed=True)


def _recover(folder: Path, segments: list[LogSegment], known: KnownOffsets, now_ms: int) -> Loaded:
    first = _first_unsafe(segments, known.recovery_point)
    safe, unsafe = segments[:first], segments[first:]
    producers = _producers_at(folder, safe, unsafe[0].base_offset, now_ms)
    epochs = LeaderEpochs(LeaderEpochCheckpoint(folder).read())
    replay = _Replay(producers, epochs, now_ms)
    size_before = sum(segment.size_bytes for segment in segments)
    end_offset, kept = _check(unsafe, known, replay)
    for segment in unsafe[len(kept) :]:
        segment.remove()
    kept = safe + kept
    dropped_bytes = size_before - sum(segment.size_bytes for segment in kept)
    start_offset = max(known.log_start_offset, kept[0].base_offset)
    if start_offset > end_offset:
        # No readable record is left: flushed records were lost.
        for segment in kept:
            segment.remove()
        return Loaded(_create_log(folder, start_offset), True, size_before)
    producers.commit()
    epochs.truncate(start_offset, end_offset)
    if epochs.starts != LeaderEpochCheckpoint(folder).read():
        LeaderEpochCheckpoint(folder).write(epochs.starts)
    kept[-1].read_first_timestamp()
    _drop_snapshots(folder, {segment.base_offset for segment in kept})
    sync_directory(folder)
    log = LoadedLog(tuple(kept), start_offset, end_offset, producers, epochs, is_closed=False)
    return Loaded(log, was_recovered=True, dropped_bytes=dropped_bytes)


class _Replay:
    """Rebuilds producers, and leader epochs if their file is missing, from the log's headers.

    The file is durable before a batch has its epoch. An epoch that only a batch has is damage.
    """

    def __init__(self, producers: ProducerState, epochs: LeaderEpochs, now_ms: int) -> None:
        self.producers = producers
        self.epochs = epochs
        self._now_ms = now_ms
        self._rebuilds_epochs = not epochs.starts
        self.leader_epoch_max = LAST_EPOCH if self._rebuilds_epochs else epochs.latest

    def add_batch(self, header: BatchHeader) -> None:
        """Add one batch."""
        self.producers.add_batch(header, self._now_ms)
        if self._rebuilds_epochs:
            self.epochs.add_batch(header)


def _first_unsafe(segments: Sequence[LogSegment], recovery_point: int) -> int:
    """Return the number of the first segment to check; earlier ones are fully flushed.

    A segment that ends at the recovery point may have been rolled after the last flush, so its
    indexes may not be durable.
    """
    flushed = bisect_left([segment.base_offset for segment in segments], recovery_point)
    for number, segment in enumerate(segments[: max(flushed - 1, 0)]):
        if not _has_indexes(segment):
            return number
    return max(flushed - 1, 0)


def _has_indexes(segment: LogSegment) -> bool:
    return segment.offset_index.path.exists() and segment.time_index.path.exists()


def _check(
    segments: list[LogSegment], known: KnownOffsets, replay: _Replay
) -> tuple[int, list[LogSegment]]:
    """Rebuild segments up to the first truncated one; returns end offset and kept segments."""
    next_offset = segments[0].base_offset
    kept: list[LogSegment] = []
    for segment in segments:
        # A gap: the end of the previous segment was lost, at the boundary of a batch.
        if segment.base_offset != next_offset:
            break
        size_before = segment.size_bytes
        next_offset = _rebuild(segment, known, replay)
        kept.append(segment)
        if segment.size_bytes < size_before:
            break
    return next_offset, kept


def _rebuild(segment: LogSegment, known: KnownOffsets, replay: _Replay) -> int:
    """Truncate a segment after its last intact batch, reindex it, return its next offset."""
    segment.clear_indexes()
    next_offset = segment.base_offset
    descriptor = segment.file.fileno()
    for header in intact_headers(
        descriptor,
        segment.size_bytes,
        next_offset,
        known.recovery_point,
        known.dense_from,
        replay.leader_epoch_max,
    ):
        segment.add_batch(header.size, header.last_offset, header.max_timestamp)
        replay.add_batch(header)
        next_offset = header.next_offset
        if segment.offset_index.pending_count >= PENDING_ENTRIES_MAX:
            segment.write_indexes()
    if segment.end_position < segment.size_bytes:
        segment.truncate(segment.end_position)
    segment.write_last_time_entry()
    segment.sync()
    segment.sync_indexes()
    return next_offset


def _producers_at(
    folder: Path, segments: Sequence[LogSegment], offset: int, now_ms: int
) -> ProducerState:
    """Return the producers at `offset`: the last valid snapshot plus the headers after it."""
    taken_at, state = _last_snapshot(folder, offset)
    first = bisect_right([segment.base_offset for segment in segments], taken_at) - 1
    for segment in segments[max(first, 0) :]:
        for _, header in segment.headers(0, segment.size_bytes):
            if header.base_offset >= taken_at:
                state.add_batch(header, now_ms)
    state.commit()
    return state


def _last_snapshot(folder: Path, offset_max: int) -> tuple[int, ProducerState]:
    snapshots = _snapshots(folder)
    for offset in sorted(snapshots, reverse=True):
        if offset <= offset_max:
            try:
                return offset, decode_snapshot(snapshots[offset].read_bytes())
            except CorruptBatch:
                snapshots[offset].unlink()
    return 0, ProducerState()


def _snapshots(folder: Path) -> dict[int, Path]:
    names = (path for path in folder.glob(f"*{SNAPSHOT_SUFFIX}"))
    return {int(path.stem): path for path in names if _OFFSET_NAME.fullmatch(path.stem)}


def _drop_snapshots(folder: Path, kept: set[int]) -> None:
    """Remove the snapshots at all offsets other than these."""
    for offset, path in _snapshots(folder).items():
        if offset not in kept:
            path.unlink()
