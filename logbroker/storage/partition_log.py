"""A partition: a log of segments that one thread appends to and many read."""

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
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    stamp_append_time,
)
from logbroker.storage.append_check import CODEC_MAX, PLAIN_ATTRIBUTES_MASK, refusal
from logbroker.storage.batch_scan import OFFSET_DELTA_MAX
from logbroker.storage.file_writes import replace_file
from logbroker.storage.flush_progress import FlushProgress
from logbroker.storage.log_view import LogOffsetMetadata, TimestampOffset
from logbroker.storage.producer_state import (
    NOT_A_DUPLICATE,
    SequencedBatch,
    encode_snapshot,
    sequence_after,
)
from logbroker.storage.readable_log import ReadableLog
from logbroker.storage.recovery import LoadedLog
from logbroker.storage.retention import (
    Reason,
    RetentionRules,
    segments_to_delete,
)
from logbroker.storage.segment import (
    SNAPSHOT_SUFFIX,
    Deleted,
    LogSegment,
    extents,
    file_name,
    mark_deleted,
)

__all__ = ["PartitionLog", "TimestampOffset"]

_PLACE: Final = Struct(">qii")
"""The fields a broker assigns, which the CRC leaves out: base offset, (length,) leader epoch."""

_NO_BATCH_FITS: Final = -1


class PartitionLog(ReadableLog):
    """`<topic>-<partition>/`: a folder of segments, their snapshots and the epoch checkpoint.

    Appending is staged: `append` assigns offsets in the caller's own bytes, `write` puts all
    that is staged into the file at once, `flush` makes it durable on a thread of its own, and
    `advance_high_watermark` shows it to readers. All but `flush`, `read` and the look-ups
    belong to one thread, the broker's loop; those may run on any thread at any time.

    A write that fails is undone as a whole. A flush that fails ends appending until the log
    is opened anew: the kernel may have dropped the pages, so a second flush that succeeds
    would prove nothing. Reading goes on in both cases.

    Source: Kafka, `UnifiedLog.java`; the paper, sections 3.1 and 3.2, for the flush before
    the exposure.
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
        self._failure: RequestRefused | None = None
        self._lost: StorageFailed | None = None
        self.written_bytes = 0
        """How much was appended since the log was opened."""
        self.config = config

    @property
    def config(self) -> LogConfig:
        """The topic's settings; a change applies to later appends."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.segment_ms
        self._stamps_append_time = config.stamps_append_time
        self._set_limit()

    @property
    def unflushed_messages(self) -> int:
        """How many offsets lie behind the high watermark."""
        return self.log_end_offset - self._view.end.offset

    @property
    def has_staged(self) -> bool:
        """Whether `write` has something to write, or a loss to tell."""
        return bool(self._active.staged) or self._lost is not None

    # --- appending ---

    def append(self, batch: memoryview, now_ms: int) -> int:
        """Check one batch, assign its offsets in place and stage it: its base offset.

        The bytes must stay as they are until `write`. A batch that an idempotent producer
        sends again is not staged; the answer is the offset it has, which may be staged too.
        When the log rolls, all that is staged is written first.

        Raises:
            RequestRefused: the batch breaks a rule (the kind says which), or StorageFailed.
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
                _,
                timestamp_ms,
                producer_id,
                producer_epoch,
                sequence,
                count,
            ) = HEADER.unpack_from(batch)
        except error:
            raise refusal(batch, self._config) from None
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
            raise self._why_refused(batch)
        if producer_id >= 0:
            known = self._offset_known(batch, producer_id, producer_epoch, sequence, count)
            if known != NOT_A_DUPLICATE:
                return known
        if self._stamps_append_time:
            timestamp_ms = now_ms
        offset = self.log_end_offset
        last_offset = offset + last_offset_delta
        segment = self._active
        position = segment.end_position
        if position == 0:
            segment.begin(timestamp_ms, now_ms)
        elif (
            position + size > self._segment_bytes
            or last_offset - segment.base_offset > OFFSET_DELTA_MAX
            or segment.age_ms(timestamp_ms, now_ms) > self._segment_ms
        ):
            segment = self._roll_for_append()
            segment.begin(timestamp_ms, now_ms)
        _PLACE.pack_into(batch, 0, offset, batch_length, self.leader_epoch)
        if self._stamps_append_time:
            stamp_append_time(batch, now_ms)
        if producer_id >= 0:
            last_sequence = sequence_after(sequence, last_offset_delta)
            stored = SequencedBatch(sequence, last_sequence, offset)
            self._producers.record(producer_id, producer_epoch, stored, now_ms)
        segment.staged.append(batch)
        segment.account(size, last_offset, timestamp_ms)
        self.log_end_offset = last_offset + 1
        return offset

    def write(self) -> None:
        """Write all that is staged, in one call as far as the kernel allows.

        Raises:
            StorageFailed: the disk refused; everything staged since the last `write` is
                undone, and the log is as it was then.
        """
        lost = self._lost
        if lost is not None:
            self._lost = None
            self._set_limit()
            raise lost
        if self._active.staged:
            self._write_staged()

    def _offset_known(
        self, batch: memoryview, producer_id: int, epoch: int, sequence: int, count: int
    ) -> int:
        if sequence < 0 or epoch < 0:
            raise refusal(batch, self._config)
        last_sequence = sequence_after(sequence, count - 1)
        return self._producers.check(producer_id, epoch, sequence, last_sequence)

    def _why_refused(self, batch: memoryview) -> RequestRefused:
        known = self._failure or self._lost
        return type(known)(*known.args) if known else refusal(batch, self._config)

    def _set_limit(self) -> None:
        """Let batches of the configured size through, or none while the log takes none."""
        config = self._config
        takes_batches = self._failure is None and self._lost is None
        largest = min(config.max_message_bytes, config.segment_bytes)
        self._batch_bytes_max = largest if takes_batches else _NO_BATCH_FITS

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
        self._failure = self._failure or failed
        self._set_limit()
        return failed

    # --- rolling ---

    def _roll_for_append(self) -> LogSegment:
        try:
            if self._active.staged:
                self._write_staged()
        except StorageFailed as failed:
            # Earlier callers were told offsets that are gone; their `write` must say so.
            self._lost = failed
            self._set_limit()
            raise
        return self._roll()

    def _roll(self) -> LogSegment:
        """Make a new segment the active one; nothing is staged."""
        offset = self.log_end_offset
        try:
            self._active.finish()
            snapshot = self.folder / file_name(offset, SNAPSHOT_SUFFIX)
            snapshot.write_bytes(encode_snapshot(self._producers.entries))
            segment = LogSegment.create(self.folder, offset)
        except OSError as cause:
            raise self._undo_roll(offset, cause) from cause
        self._progress.note_roll(segment)
        self._view = self._view._replace(segments=(*self._view.segments, segment))
        self._active = segment
        return segment

    def _undo_roll(self, offset: int, cause: OSError) -> StorageFailed:
        try:
            # Left behind, an empty segment would hide from recovery what is appended to
            # the one before it.
            LogSegment(self.folder, offset, 0, 0).remove()
        except OSError as worse:
            self._fail(f"undoing a failed roll failed: {worse}")
        return StorageFailed(f"{self.folder.name}: roll failed: {cause}")

    # --- flushing ---

    def flush(self) -> int:
        """Make durable what is written by now: the offset below which all is. Any thread.

        Raises:
            StorageFailed: the disk refused; the log takes no more appends.
        """
        self._check_usable()
        try:
            return self._progress.flush(self.folder).offset
        except OSError as cause:
            raise self._fail(f"flush failed: {cause}") from cause

    def advance_high_watermark(self, offset: int) -> None:
        """Show readers what is flushed, which is everything below `offset` or more."""
        flushed = self._progress.settle()
        assert offset <= flushed.offset, f"{offset} is not flushed, {flushed.offset} is"
        self._view = self._view._replace(end=flushed)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The last leader epoch up to this one, and the offset it ended at; (-1, -1) if none."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    # --- what goes ---

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset forward to `offset`: the log start offset after that.

        Segments below it go with the next retention.

        Raises:
            OffsetOutOfRange: `offset` is above the high watermark, or negative.
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
        """Take out the segments that the topic's settings let go; their files get `.deleted`.

        Raises:
            StorageFailed: the disk refused.
        """
        try:
            reasons = self._reasons_to_delete(now_ms)
            if len(reasons) == len(self._view.segments) and not self._rolled():
                reasons.pop()
            return self._take_out(reasons)
        except OSError as cause:
            raise StorageFailed(f"{self.folder.name}: retention failed: {cause}") from cause

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget idempotent producers that were silent for this long."""
        self._producers.expire(now_ms, expiration_ms)

    def _reasons_to_delete(self, now_ms: int) -> list[Reason]:
        view, config = self._view, self._config
        return segments_to_delete(
            extents(view.segments, self.log_end_offset),
            self.size_bytes,
            view.start_offset,
            view.end.offset,
            RetentionRules(config.retention_ms, config.retention_bytes, now_ms),
        )

    def _rolled(self) -> bool:
        """Roll, unless the disk is too full: what the older segments free makes the room."""
        try:
            self._roll()
        except StorageFailed:
            return False
        return True

    def _take_out(self, reasons: list[Reason]) -> list[Deleted]:
        if not reasons:
            return []
        view = self._view
        gone, kept = view.segments[: len(reasons)], view.segments[len(reasons) :]
        # Readers must not find a segment in the view once its files are renamed.
        start_offset = max(view.start_offset, kept[0].base_offset)
        self._view = view._replace(segments=kept, start_offset=start_offset)
        self._progress.note_removal(kept)
        return [
            mark_deleted(segment, reason) for segment, reason in zip(gone, reasons, strict=True)
        ]

    # --- the end ---

    def close(self) -> None:
        """Write, flush and index everything, so that the next opening scans nothing.

        Raises:
            StorageFailed: the disk refused now or before; the next opening must recover.
        """
        self._check_usable()
        self.write()
        self.advance_high_watermark(self.flush())
        if self._closed_with == (self._active, self.log_end_offset):
            return  # as it was opened: thousands of idle logs must not make a stop long
        try:
            self._active.finish()
            self._active.sync_indexes()
            snapshot = self.folder / file_name(self.log_end_offset, SNAPSHOT_SUFFIX)
            replace_file(snapshot, encode_snapshot(self._producers.entries))
        except OSError as cause:
            raise StorageFailed(f"{self.folder.name}: close failed: {cause}") from cause

    def discard(self) -> None:
        """The topic is deleted: later appends and flushes are refused."""
        self._failure = UnknownTopicOrPartition(f"{self.folder.name} is deleted")
        self._set_limit()
