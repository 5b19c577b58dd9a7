"""Compacts one log: rewrites its rolled segments with the last record of each key.

Each pass adds the keys of not yet compacted segments to a table of bounded size, and rewrites
every segment up to there. Small segments are merged up to `segment.bytes`. The active segment
stays as it is.

The last batch of each written segment stays, if only its header: so the offsets of a segment
always end where the next one begins.

Source: Kafka, `Cleaner.java`, `LogCleaner.java`; decision record 0027.
"""

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from logbroker.errors import CorruptBatch, LogbrokerError
from logbroker.records.batch import BatchHeader
from logbroker.storage.batch_scan import OFFSET_DELTA_MAX
from logbroker.storage.cleaned_segment import CleanedSegment, read_batches
from logbroker.storage.domain.compaction import (
    CleanableSegment,
    CleaningLimits,
    CompactionRules,
    DirtyPart,
    KeyOffsets,
    compact_batch,
    dirty_part,
    group_by_size,
)
from logbroker.storage.file_writes import sync_directory
from logbroker.storage.log_view import LogView
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.roll_limits import roll_bytes
from logbroker.storage.segment import LogSegment

_log: Final = logging.getLogger(__name__)

SEGMENT_BYTES_MAX: Final = 2**31 - 2**26
"""A group of segments stays below the largest position of an index; a batch that is compressed
again may grow a little."""

T = TypeVar("T")


class CleaningStopped(LogbrokerError):
    """The broker shuts down, or the log was deleted; what was not replaced is dropped."""


class CleanerHost(Protocol):
    """What a cleaner needs from its broker."""

    def pause(self) -> None:
        """Let other threads run.

        Raises:
            CleaningStopped: the broker shuts down.
        """

    def on_loop(self, call: Callable[[], T]) -> T:
        """Return the result of a call on the loop's thread.

        Raises:
            CleaningStopped: the broker shuts down.
        """

    def is_open(self, log: PartitionLog) -> bool:
        """Return whether the log was not deleted; only on the loop's thread."""

    def write_checkpoints(self) -> None:
        """Make the recovery points durable."""

    def delete_later(self, log: PartitionLog, paths: Sequence[Path]) -> None:
        """Delete renamed files after `file.delete.delay.ms`; only on the loop's thread."""


class CleanedLog(NamedTuple):
    """The result of one cleaning; the log is compacted up to `end_offset`."""

    end_offset: int
    passes: int
    bytes_before: int
    bytes_after: int


class _Rolled(NamedTuple):
    """A rolled segment, and the base offset of the following one."""

    segment: LogSegment
    next_offset: int


def find_dirty_part(log: PartitionLog, clean_until: int, now_ms: int) -> DirtyPart | None:
    """Return the part of a log to compact now, if any; safe on any thread.

    Raises:
        OSError: a read failed.
    """
    view, config = log.view, log.config
    limits = CleaningLimits(
        config.min_cleanable_dirty_ratio,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        now_ms,
    )
    first_dirty = clean_until
    if not view.start_offset <= clean_until <= view.segments[-1].base_offset:
        first_dirty = view.start_offset
    rolled = _rolled_segments(view)
    return dirty_part((_cleanable(each, first_dirty) for each in rolled), first_dirty, limits)


class SegmentCleaner:
    """Compacts one log on a worker thread; the loop's thread only renames files."""

    def __init__(
        self, log: PartitionLog, host: CleanerHost, dedupe_buffer_bytes: int, now_ms: int
    ) -> None:
        self._log = log
        self._host = host
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._now_ms = now_ms
        self._unreadable = 0

    def clean(self, part: DirtyPart) -> CleanedLog:
        """Compact the log up to the end of its dirty part, in as many passes as memory requires.

        Raises:
            CleaningStopped: the broker shuts down, or the log was deleted.
            OSError: a disk operation failed.
            CorruptBatch: a segment does not consist of whole batches.
        """
        start, passes, before = part.start, 0, self._log.size_bytes
        while start < part.end:
            keys = self._collect_keys(start, part.end)
            for group in self._groups(keys.end_offset):
                self._clean_group(group, keys)
            start = keys.end_offset
            passes += 1
        return CleanedLog(start, passes, before, self._log.size_bytes)

    def _collect_keys(self, start: int, end: int) -> KeyOffsets:
        keys = KeyOffsets(self._dedupe_buffer_bytes, secrets.token_bytes(16))
        keys.end_offset = start
        for rolled in _rolled_segments(self._log.view):
            if rolled.next_offset <= start or rolled.segment.base_offset >= end:
                continue
            for header, batch in read_batches(rolled.segment, self._host.pause):
                if header.next_offset <= start:
                    continue
                if not keys.has_room(header.record_count):
                    return keys
                try:
                    keys.add_batch(header, batch)
                except CorruptBatch as error:
                    self._report_unreadable(header, error)
                    keys.skip_batch(header)
        keys.end_offset = end
        return keys

    def _groups(self, end: int) -> Iterator[list[_Rolled]]:
        rolled = _rolled_segments(self._log.view)
        return group_by_size(
            [each for each in rolled if each.segment.base_offset < end],
            lambda each: (each.segment.size_bytes, each.segment.base_offset, each.next_offset),
            min(roll_bytes(self._log.config), SEGMENT_BYTES_MAX),
            OFFSET_DELTA_MAX,
        )

    def _clean_group(self, group: Sequence[_Rolled], keys: KeyOffsets) -> None:
        segments = [each.segment for each in group]
        rules = CompactionRules(keys, self._now_ms, self._log.config.delete_retention_ms)
        cleaned = CleanedSegment(self._log.folder, segments[0].base_offset)
        try:
            is_changed = self._write(cleaned, segments, rules, group[-1].next_offset)
            if is_changed or len(segments) > 1:
                cleaned.finish(segments[-1].path.stat().st_mtime_ns)
                self._swap(cleaned, segments)
            else:
                cleaned.remove()
        except BaseException:
            if cleaned.is_replacing:
                # Half renamed: the next cleaning, or the next start, completes it.
                cleaned.close()
            else:
                self._undo(cleaned)
            raise

    def _write(
        self,
        cleaned: CleanedSegment,
        segments: Sequence[LogSegment],
        rules: CompactionRules,
        next_offset: int,
    ) -> bool:
        """Write the records that stay, and return whether any batch differs."""
        is_changed = False
        last_of_producers = self._log.last_producer_offsets()
        for segment in segments:
            for header, batch in read_batches(segment, self._host.pause):
                keeps_header = (
                    header.next_offset == next_offset or header.last_offset in last_of_producers
                )
                kept = self._compact(header, batch, rules, keeps_header=keeps_header)
                if kept is not None:
                    cleaned.add(header, kept)
                is_changed |= kept is not batch
        return is_changed

    def _compact(
        self, header: BatchHeader, batch: bytes, rules: CompactionRules, *, keeps_header: bool
    ) -> bytes | None:
        if not header.record_count:
            return batch if keeps_header else None
        try:
            return compact_batch(header, batch, rules, keeps_header=keeps_header)
        except CorruptBatch as error:
            self._report_unreadable(header, error)
            return batch

    def _swap(self, cleaned: CleanedSegment, segments: Sequence[LogSegment]) -> None:
        log, host = self._log, self._host
        for segment in segments:
            segment.open_for_reading()
        # Recovery accepts gaps between offsets only below the recovery point.
        host.write_checkpoints()
        sync_directory(log.folder)

        def begin() -> None:
            self._check_present(segments)
            cleaned.rename_to_swap()

        def complete() -> None:
            self._check_present(segments)
            segment, deleted = cleaned.replace(segments, self._now_ms)
            log.replace_segments(segments, segment)
            host.delete_later(log, deleted)

        host.on_loop(begin)
        sync_directory(log.folder)
        host.on_loop(complete)
        sync_directory(log.folder)

    def _check_present(self, segments: Sequence[LogSegment]) -> None:
        if not self._host.is_open(self._log) or not self._log.has_adjacent(segments):
            raise CleaningStopped(f"segments of {self._log.folder.name} were deleted meanwhile")

    def _undo(self, cleaned: CleanedSegment) -> None:
        """Remove the files of a cleaning that failed, unless another log has the folder."""

        def remove() -> None:
            if self._host.is_open(self._log):
                cleaned.remove()

        cleaned.close()
        try:
            self._host.on_loop(remove)
        except (CleaningStopped, OSError) as error:
            # The next start removes them, or completes the replacement.
            _log.info("files of a cleaning are kept partition=%s: %s", self._log.folder.name, error)

    def _report_unreadable(self, header: BatchHeader, error: CorruptBatch) -> None:
        self._unreadable += 1
        if self._unreadable == 1:
            _log.error(
                "compaction keeps an unreadable batch partition=%s offsets=%d..%d: %s",
                self._log.folder.name,
                header.base_offset,
                header.last_offset,
                error,
            )


def _rolled_segments(view: LogView) -> list[_Rolled]:
    """Return the flushed segments before the active one."""
    following = zip(view.segments, view.segments[1:], strict=False)
    return [
        _Rolled(segment, after.base_offset)
        for segment, after in following
        if after.base_offset <= view.end.offset
    ]


def _cleanable(rolled: _Rolled, first_dirty: int) -> CleanableSegment:
    segment = rolled.segment
    first_ms = -1
    if rolled.next_offset > first_dirty:
        for _, header in segment.headers(0, segment.size_bytes):
            first_ms = header.max_timestamp
            break
    return CleanableSegment(
        segment.base_offset,
        rolled.next_offset,
        segment.size_bytes,
        first_ms,
        segment.retention_timestamp_ms(),
    )
