"""The log of a partition, which one thread appends to and many threads read."""

from pathlib import Path
from struct import Struct, error
from typing import Final

from crc32c import crc32c

from logbroker.config import LogConfig
from logbroker.errors import (
    OffsetOutOfRange,
    RequestRefused,
    StorageFailed,
    UnknownTopicOrPartition,
)
from logbroker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    NO_TIMESTAMP,
    stamp_append_time,
    stamp_max_timestamp,
)
from logbroker.records.validator import ITEMS_AT_ONCE, UNLIMITED, Allowance, validate_records
from logbroker.storage.batch_scan import OFFSET_DELTA_MAX
from logbroker.storage.domain.append_check import CODEC_MAX, PLAIN_ATTRIBUTES_MASK, rejection
from logbroker.storage.domain.producer_state import (
    NOT_A_DUPLICATE,
    SequencedBatch,
    encode_snapshot,
    sequence_after,
)
from logbroker.storage.domain.retention import (
    Reason,
    RetentionRules,
    segments_to_delete,
)
from logbroker.storage.file_writes import replace_file
from logbroker.storage.flush_progress import FlushProgress
from logbroker.storage.log_view import LogOffsetMetadata, TimestampOffset
from logbroker.storage.readable_log import ReadableLog
from logbroker.storage.recovery import LoadedLog
from logbroker.storage.roll_limits import roll_bytes, roll_ms
from logbroker.storage.segment import (
    SNAPSHOT_SUFFIX,
    Deleted,
    LogSegment,
    file_name,
    mark_deleted,
    segment_extents,
)

__all__ = ["PartitionLog", "TimestampOffset"]

_ASSIGNED_FIELDS: Final = Struct(">qii")
"""The fields outside the CRC: base offset, (length,) leader epoch; the broker sets them."""

_NO_BATCH_FITS: Final = -1


class PartitionLog(ReadableLog):
    """`<topic>-<partition>/`: a folder with segments, producer snapshots and leader epochs.

    `append` assigns offsets in the caller's bytes and stages the batch, `write` writes all
    staged batches, `flush` makes them durable on a flush thread, and `advance_high_watermark`
    makes them readable. `flush`, reads and lookups are safe on any thread; all other methods
    run on the loop's thread.

    A failed write is undone. After a failed flush the log rejects appends until it is reopened:
    the kernel may have dropped the pages, so a later successful flush would prove nothing.
    Reads continue in both cases.

    Source: Kafka, `UnifiedLog.java`; the paper, sections 3.1 and 3.2: records are exposed after
    the flush.
    """

    def __init__(
        self, folder: Path, topic: str, partition: int, config: LogConfig, loaded: LoadedLog
    ) -> None:
        active = loaded.segments[-1]
        end = LogOffsetMetadata(loaded.end_offset, active.base_offset, active.size_bytes)
        super().__init__(folder, loaded.segments, loaded.start_offset, end)
        self.topic = topic
        self.partition = partition
        self.leader_epoch = loaded.epochs.latest
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._active = active
        self._closed_with = (active, loaded.end_offset) if loaded.is_closed else None
        self._progress = FlushProgress(active, end)
        self.failure: RequestRefused | None = None
        """Why appends are rejected until the log is reopened, or for good if it was deleted."""
        self._undone: StorageFailed | None = None
        self.written_bytes = 0
        """The bytes appended since the log was opened."""
        self.config = config

    @property
    def config(self) -> LogConfig:
        """The topic's settings; a change applies to later appends."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._roll_bytes = roll_bytes(config)
        self._roll_ms = roll_ms(config)
        self._stamps_append_time = config.stamps_append_time
        self._requires_keys = config.is_compacted
        self._range_ms = NO_TIMESTAMP
        self._set_limit()

    @property
    def unflushed_messages(self) -> int:
        """The number of offsets from the high watermark to the log end offset."""
        return self.log_end_offset - self._view.end.offset

    @property
    def has_staged(self) -> bool:
        """Whether `write` has batches to write, or an error to raise."""
        return bool(self._active.staged) or self._undone is not None

    # --- appending ---

    def append(  # noqa: C901  # the hot path of Produce
        self,
        batch: memoryview,
        now_ms: int,
        allowance: Allowance = UNLIMITED,
        validated_ms: int | None = None,
    ) -> int:
        """Validate one batch, assign its offsets in place, stage it, return its base offset.

        The bytes must not change until `write`. A duplicate of an idempotent producer is not
        staged; its existing offset is returned. If the log rolls, staged batches are written
        first. With `validated_ms`, the result of `validate_batch`, the records are not read.

        Raises:
            RequestRefused: the batch is invalid (see the subclass), or StorageFailed.
            LargeBatch: validating the records exceeds the `allowance`.
        """
        try:
            (
                base_offset,
                batch_length,
                _,
                magic,
                crc,
                attributes,
                last_offset_delta,
                base_timestamp_ms,
                timestamp_ms,
                producer_id,
                producer_epoch,
                sequence,
                count,
            ) = HEADER.unpack_from(batch)
        except error:
            raise self._invalid(batch) from None
        size = len(batch)
        if (
            size > self._batch_bytes_max
            or size != batch_length + LENGTH_PREFIX_BYTES
            or magic != MAGIC_V2
            or base_offset != 0
            or not 0 < count == last_offset_delta + 1
            or attributes & PLAIN_ATTRIBUTES_MASK > CODEC_MAX
            or crc32c(batch[CRC_START:]) != crc
        ):
            raise self._rejection(batch)
        if now_ms != self._range_ms:
            self._range_ms = now_ms
            self._timestamp_min_ms, self._timestamp_max_ms = self._config.timestamp_range(now_ms)
        if validated_ms is None:
            records, start = batch, HEADER_BYTES
            if attributes or count > ITEMS_AT_ONCE:
                records, start = allowance.take_records(batch, attributes, count)
            validated_ms = validate_records(
                records,
                start,
                count,
                base_timestamp_ms,
                self._timestamp_min_ms,
                self._timestamp_max_ms,
                self._requires_keys,
                allowance.headers_max,
            )
        if producer_id >= 0:
            known = self._duplicate_offset(batch, producer_id, producer_epoch, sequence, count)
            if known != NOT_A_DUPLICATE:
                return known
        if self._stamps_append_time:
            timestamp_ms = now_ms
            stamp_append_time(batch, now_ms)
        elif validated_ms != timestamp_ms:
            timestamp_ms = validated_ms
            stamp_max_timestamp(batch, timestamp_ms)
        offset = self.log_end_offset
        last_offset = offset + last_offset_delta
        segment = self._active
        position = segment.end_position
        if position == 0:
            segment.set_first_batch(timestamp_ms, now_ms)
        elif (
            position + size > self._roll_bytes
            or last_offset - segment.base_offset > OFFSET_DELTA_MAX
            or segment.age_ms(timestamp_ms, now_ms) > self._roll_ms
        ):
            segment = self._roll_for_append()
            segment.set_first_batch(timestamp_ms, now_ms)
        _ASSIGNED_FIELDS.pack_into(batch, 0, offset, batch_length, self.leader_epoch)
        if producer_id >= 0:
            last_sequence = sequence_after(sequence, last_offset_delta)
            stored = SequencedBatch(sequence, last_sequence, offset)
            self._producers.record(producer_id, producer_epoch, stored, now_ms)
        segment.staged.append(batch)
        segment.add_batch(size, last_offset, timestamp_ms)
        self.log_end_offset = last_offset + 1
        return offset

    def write(self) -> None:
        """Write all staged batches, in one call if the kernel allows.

        Raises:
            StorageFailed: the write failed; all batches since the last `write` are undone.
        """
        undone = self._undone
        if undone is not None:
            self._undone = None
            self._set_limit()
            raise undone
        if self._active.staged:
            self._write_staged()

    def _duplicate_offset(
        self, batch: memoryview, producer_id: int, epoch: int, sequence: int, count: int
    ) -> int:
        if sequence < 0 or epoch < 0:
            raise self._invalid(batch)
        last_sequence = sequence_after(sequence, count - 1)
        return self._producers.check(producer_id, epoch, sequence, last_sequence)

    def _rejection(self, batch: memoryview) -> RequestRefused:
        known = self.failure or self._undone
        return type(known)(*known.args) if known else self._invalid(batch)

    def _invalid(self, batch: memoryview) -> RequestRefused:
        return rejection(batch, self._config.max_message_bytes, self._config.segment_bytes)

    def _set_limit(self) -> None:
        """Set the maximum batch size; no batch is accepted after a failure."""
        config = self._config
        accepts_batches = self.failure is None and self._undone is None
        largest = min(config.max_message_bytes, config.segment_bytes)
        self._batch_bytes_max = largest if accepts_batches else _NO_BATCH_FITS

    def _write_staged(self) -> None:
        segment = self._active
        size_before = segment.size_bytes
        try:
            segment.write()
        except OSError as cause:
            raise self._undo(cause) from cause
        self._producers.commit()
        self.written_bytes += segment.size_bytes - size_before
        end = LogOffsetMetadata(self.log_end_offset, segment.base_offset, segment.size_bytes)
        self._progress.written = end

    def _undo(self, cause: OSError) -> StorageFailed:
        self.log_end_offset = self._progress.written.offset
        self._producers.undo()
        failed = StorageFailed(f"{self.folder.name}: write failed: {cause}")
        try:
            self._active.undo()
        except OSError as worse:
            self._fail(f"undoing a failed write failed: {worse}")
        return failed

    def _fail(self, what: str) -> StorageFailed:
        failed = StorageFailed(f"{self.folder.name}: {what}")
        self.failure = self.failure or failed
        self._set_limit()
        return failed

    # --- rolling ---

    def _roll_for_append(self) -> LogSegment:
        try:
            if self._active.staged:
                self._write_staged()
        except StorageFailed as failed:
            # Earlier `append` calls returned offsets that are undone; `write` must raise.
            self._undone = failed
            self._set_limit()
            raise
        return self._roll()

    def _roll(self) -> LogSegment:
        """Create a new active segment; no batch may be staged."""
        offset = self.log_end_offset
        try:
            self._active.write_last_time_entry()
            snapshot = self.folder / file_name(offset, SNAPSHOT_SUFFIX)
            snapshot.write_bytes(encode_snapshot(self._producers.entries))
            segment = LogSegment.create(self.folder, offset)
        except OSError as cause:
            raise self._undo_roll(offset, cause) from cause
        self._progress.add_segment(segment)
        self._view = self._view._replace(segments=(*self._view.segments, segment))
        self._active = segment
        self._roll_ms = roll_ms(self._config)
        return segment

    def _undo_roll(self, offset: int, cause: OSError) -> StorageFailed:
        try:
            # If it stayed, recovery would drop records that are appended to the segment
            # before it.
            LogSegment(self.folder, offset, 0, 0).remove()
        except OSError as worse:
            self._fail(f"undoing a failed roll failed: {worse}")
        return StorageFailed(f"{self.folder.name}: roll failed: {cause}")

    # --- flushing ---

    def flush(self) -> int:
        """Flush all written batches and return their end offset; safe on any thread.

        Raises:
            StorageFailed: the flush failed; the log rejects appends from now on.
        """
        self._check_usable()
        try:
            return self._progress.flush(self.folder).offset
        except OSError as cause:
            raise self._fail(f"flush failed: {cause}") from cause

    def advance_high_watermark(self, offset: int) -> None:
        """Make flushed records readable: those below `offset`, and possibly more."""
        flushed = self._progress.release_flushed()
        assert offset <= flushed.offset, f"{offset} is not flushed; flushed: {flushed.offset}"
        self._view = self._view._replace(end=flushed)

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the last leader epoch up to `epoch` and its end offset, or (-1, -1)."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    # --- deletion ---

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset forward to `offset` and return the new one.

        Segments below it are deleted by the next retention.

        Raises:
            OffsetOutOfRange: `offset` is above the high watermark or negative.
        """
        view = self._view
        if not 0 <= offset <= view.end.offset:
            raise OffsetOutOfRange(
                f"{self.folder.name}: cannot delete up to {offset}; "
                f"the high watermark is {view.end.offset}"
            )
        self._view = view._replace(start_offset=max(offset, view.start_offset))
        return self._view.start_offset

    def apply_retention(self, now_ms: int) -> list[Deleted]:
        """Delete segments by the topic's retention; their files are renamed to `*.deleted`.

        Raises:
            StorageFailed: a disk operation failed.
        """
        try:
            reasons = self._reasons_to_delete(now_ms)
            if len(reasons) == len(self._view.segments) and not self._try_roll():
                reasons.pop()
            return self._delete_segments(reasons)
        except OSError as cause:
            raise StorageFailed(f"{self.folder.name}: retention failed: {cause}") from cause

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Remove idempotent producers without writes for this long."""
        self._producers.expire(now_ms, expiration_ms)

    def last_producer_offsets(self) -> set[int]:
        """Return the last offset of each idempotent producer; safe on any thread."""
        return {entry.last_offset for entry in self._producers.entries.copy().values()}

    def _reasons_to_delete(self, now_ms: int) -> list[Reason]:
        view, config = self._view, self._config
        return segments_to_delete(
            segment_extents(view.segments, self.log_end_offset),
            self.size_bytes,
            view.start_offset,
            view.end.offset,
            RetentionRules(*config.retention, now_ms),
        )

    def _try_roll(self) -> bool:
        """Roll and return whether it worked; on a full disk, older segments are deleted first."""
        try:
            self._roll()
        except StorageFailed:
            return False
        return True

    def _delete_segments(self, reasons: list[Reason]) -> list[Deleted]:
        if not reasons:
            return []
        view = self._view
        deleted, kept = view.segments[: len(reasons)], view.segments[len(reasons) :]
        # The view must not contain a segment whose files are renamed.
        start_offset = max(view.start_offset, kept[0].base_offset)
        self._view = view._replace(segments=kept, start_offset=start_offset)
        self._progress.retain_segments(kept)
        return [
            mark_deleted(segment, reason) for segment, reason in zip(deleted, reasons, strict=True)
        ]

    # --- closing ---

    def close(self) -> None:
        """Write and flush batches, indexes and the producer snapshot.

        Raises:
            StorageFailed: a write failed now or before; the next start recovers the log.
        """
        self._check_usable()
        self.write()
        self.advance_high_watermark(self.flush())
        if self._closed_with == (self._active, self.log_end_offset):
            return  # unchanged: thousands of idle logs must not delay a shutdown
        try:
            self._active.write_last_time_entry()
            self._active.sync_indexes()
            snapshot = self.folder / file_name(self.log_end_offset, SNAPSHOT_SUFFIX)
            replace_file(snapshot, encode_snapshot(self._producers.entries))
        except OSError as cause:
            raise StorageFailed(f"{self.folder.name}: close failed: {cause}") from cause

    def discard(self) -> None:
        """Reject all later appends and flushes: the topic is deleted."""
        self.failure = UnknownTopicOrPartition(f"{self.folder.name} was deleted")
        self._set_limit()
