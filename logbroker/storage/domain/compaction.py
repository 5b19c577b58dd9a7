"""Compaction: which records of a log stay, and the batches without the others; no I/O.

The last record of each key stays, with its offset. A record without a value is a tombstone: it
stays for `delete.retention.ms` after its first compaction, so that every consumer can see it. The
first compaction stores the end of that time, the delete horizon, as the base timestamp of the
batch; timestamp deltas are relative to it.

Source: Kafka, `Cleaner.java` and `MemoryRecords.filterTo`; KIP-534 (delete horizon).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from logbroker.errors import CorruptBatch
from logbroker.records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    crc_matches,
)
from logbroker.records.compression import Codec, compress, decompress
from logbroker.records.record import RECORDS_BYTES_MAX
from logbroker.records.varint import encode_varint, encode_varlong, read_varint, read_varlong

ENTRY_BYTES: Final = 224
"""The memory of one key in `KeyOffsets`, with its share of a growing table, rounded up."""

KEY_BYTES_MAX: Final = 16
"""A longer key is stored as a hash of this size."""

INT64_MAX: Final = 2**63 - 1
NOTHING: Final = -1

NULL_LENGTH: Final = 1
"""The length -1 as a varint."""

T = TypeVar("T")


RecordSlice = tuple[int, int, int, int, int, bytes | None, bool]
"""Start and end of a record, the position after its timestamp delta, the timestamp delta, the
offset delta, the key, and whether it has a value. Creating named tuples would take a third longer.
"""


class KeyOffsets:
    """The last offset of each key in a part of the log, in bounded memory.

    Long keys are hashed with a secret of this run, so that no client can choose keys that collide.
    """

    def __init__(self, bytes_max: int, secret: bytes) -> None:
        self._entries_max = max(1, bytes_max // ENTRY_BYTES)
        self._secret = secret
        self._offsets: dict[bytes, int] = {}
        self.end_offset = 0
        """The offset after the last batch that was added."""

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, records: int) -> bool:
        """Return whether this many more keys fit; always true while it is empty."""
        return not self._offsets or len(self._offsets) + records <= self._entries_max

    def add_batch(self, header: BatchHeader, batch: bytes) -> None:
        """Add the records of a batch; batches are passed in the order of offsets.

        Raises:
            CorruptBatch: the records cannot be read.
        """
        base_offset, offsets, stored = header.base_offset, self._offsets, self._stored
        for *_, offset_delta, key, _ in slice_records(header, plain_records(header, batch)):
            if key is not None:
                short = key if len(key) < KEY_BYTES_MAX else stored(key)
                offsets[short] = base_offset + offset_delta
        self.end_offset = header.next_offset

    def skip_batch(self, header: BatchHeader) -> None:
        """Leave out a batch that cannot be read."""
        self.end_offset = header.next_offset

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Return whether a later record has the same key."""
        short = key if len(key) < KEY_BYTES_MAX else self._stored(key)
        return offset < self._offsets.get(short, NOTHING)

    def _stored(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=KEY_BYTES_MAX, key=self._secret).digest()


class CompactionRules(NamedTuple):
    """What is known about later records, the time, and `delete.retention.ms`."""

    keys: KeyOffsets
    now_ms: int
    delete_retention_ms: int


def plain_records(header: BatchHeader, batch: bytes) -> bytes:
    """Return the decompressed records of a batch.

    Raises:
        CorruptBatch: the CRC does not match, or the records cannot be decompressed.
    """
    if not crc_matches(batch, header.crc):
        raise CorruptBatch(f"the batch at {header.base_offset} does not match its CRC")
    try:
        codec = Codec(header.compression)
    except ValueError:
        raise CorruptBatch(f"batch has codec {header.compression}; allowed: 0 to 4") from None
    return decompress(codec, memoryview(batch)[HEADER_BYTES:], RECORDS_BYTES_MAX)


def slice_records(header: BatchHeader, data: bytes) -> list[RecordSlice]:
    """Return each record of a batch with the decompressed records `data`.

    Raises:
        CorruptBatch: the records are malformed.
    """
    position, size = 0, len(data)
    slices: list[RecordSlice] = []
    try:
        for _ in range(header.record_count):
            start = position
            # Nearly every number has one or two bytes: save a call for each.
            if (byte := data[position]) < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif (more := data[position + 1]) < 0x80:
                folded = byte & 0x7F | more << 7
                length, position = (folded >> 1) ^ -(folded & 1), position + 2
            else:
                length, position = read_varint(data, position)
            end = position + length
            if (byte := data[position + 1]) < 0x80:
                timestamp_delta, rest = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp_delta, rest = read_varlong(data, position + 1)
            if (byte := data[rest]) < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), rest + 1
            else:
                offset_delta, position = read_varint(data, rest)
            if (byte := data[position]) < 0x80:
                key_length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            # A null value has the length -1, which is encoded as one byte.
            has_value = data[position] != NULL_LENGTH
            if not position < end <= size:
                raise CorruptBatch(f"a record of the batch at {header.base_offset} is malformed")
            slices.append((start, end, rest, timestamp_delta, offset_delta, key, has_value))
            position = end
    except IndexError:
        raise CorruptBatch(f"batch at {header.base_offset}: its records are cut off") from None
    return slices


def compact_batch(
    header: BatchHeader, batch: bytes, rules: CompactionRules, *, keeps_header: bool
) -> bytes | None:
    """Return a batch without the records that compaction removes; None if nothing is left.

    The batch keeps its first and last offset, and its producer's sequence numbers. With
    `keeps_header`, a batch without records is left if all are removed.

    Raises:
        CorruptBatch: the batch cannot be read.
    """
    if header.is_control:
        return batch
    data = plain_records(header, batch)
    records = slice_records(header, data)
    kept = _kept(header, records, rules)
    has_tombstone = not all(has_value for *_, has_value in kept)
    gets_horizon = has_tombstone and not header.has_delete_horizon
    if not kept:
        return _empty_batch(header) if keeps_header else None
    if len(kept) == len(records) and not gets_horizon:
        return batch
    return _rebuilt(header, data, kept, _horizon_ms(rules) if gets_horizon else None)


def _kept(
    header: BatchHeader, records: list[RecordSlice], rules: CompactionRules
) -> list[RecordSlice]:
    keys, base_offset = rules.keys, header.base_offset
    if base_offset >= keys.end_offset:
        return records
    has_expired = header.has_delete_horizon and header.base_timestamp <= rules.now_ms
    is_superseded = keys.is_superseded
    # The keys end with a batch, so all records of this batch are below their end.
    return [
        record
        for record in records
        if (key := record[5]) is not None
        and (record[6] or not has_expired)
        and not is_superseded(key, base_offset + record[4])
    ]


def _horizon_ms(rules: CompactionRules) -> int:
    return min(rules.now_ms + rules.delete_retention_ms, INT64_MAX)


def _rebuilt(
    header: BatchHeader, data: bytes, kept: Sequence[RecordSlice], horizon_ms: int | None
) -> bytes:
    base_ms = header.base_timestamp
    if horizon_ms is None:
        body = b"".join([data[start:end] for start, end, *_ in kept])
    else:
        shift_ms = base_ms - horizon_ms
        body = b"".join([_shifted(data, record, shift_ms) for record in kept])
        header = header._replace(
            base_timestamp=horizon_ms, attributes=header.attributes | DELETE_HORIZON_FLAG
        )
    if not header.is_append_time:
        newest_ms = base_ms + max(record[3] for record in kept)
        header = header._replace(max_timestamp=newest_ms)
    return _encoded(header, len(kept), compress(Codec(header.compression), body))


def _shifted(data: bytes, record: RecordSlice, shift_ms: int) -> bytes:
    """Return a record whose timestamp delta is larger by `shift_ms`."""
    _, end, rest, timestamp_delta, *_ = record
    delta = encode_varlong(timestamp_delta + shift_ms)
    length = 1 + len(delta) + end - rest
    return encode_varint(length) + b"\0" + delta + data[rest:end]


def _empty_batch(header: BatchHeader) -> bytes:
    """Return a batch without records, which no lookup by time finds.

    It has no codec: librdkafka cannot decompress nothing.
    """
    attributes = header.attributes & ~(DELETE_HORIZON_FLAG | COMPRESSION_MASK)
    without_time = header._replace(
        attributes=attributes, base_timestamp=NO_TIMESTAMP, max_timestamp=NO_TIMESTAMP
    )
    return _encoded(without_time, 0, b"")


def _encoded(header: BatchHeader, count: int, body: bytes) -> bytes:
    header = header._replace(
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body), record_count=count, crc=0
    )
    crc = crc32c(body, crc32c(HEADER.pack(*header)[CRC_START:]))
    return HEADER.pack(*header._replace(crc=crc)) + body


class CleanableSegment(NamedTuple):
    """A rolled segment with offsets `[base_offset, next_offset)`; `newest_ms` is -1 if unknown."""

    base_offset: int
    next_offset: int
    size_bytes: int
    first_ms: int
    newest_ms: int


class CleaningLimits(NamedTuple):
    """The topic's settings of compaction, and the time."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    now_ms: int


class DirtyPart(NamedTuple):
    """The part of a log that was not compacted yet: offsets `[start, end)` of whole segments."""

    start: int
    end: int
    ratio: float
    """Its share of the bytes that can be compacted."""


def dirty_part(
    segments: Iterable[CleanableSegment], first_dirty: int, limits: CleaningLimits
) -> DirtyPart | None:
    """Return the part to compact now; None if there is none.

    `segments` are the rolled and flushed ones, oldest first. A record that is younger than
    `min.compaction.lag.ms` ends the part. It is due if its share of the log is above
    `min.cleanable.dirty.ratio`, or if a record in it is older than `max.compaction.lag.ms`.

    Source: Kafka, `LogCleanerManager.grabFilthiestCompactedLog`.
    """
    clean_bytes = dirty_bytes = 0
    end = first_dirty
    is_overdue = False
    for segment in segments:
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        if limits.min_lag_ms > 0 and limits.now_ms - segment.newest_ms < limits.min_lag_ms:
            break
        dirty_bytes += segment.size_bytes
        end = segment.next_offset
        is_overdue |= 0 <= segment.first_ms < limits.now_ms - limits.max_lag_ms
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    if ratio > limits.min_dirty_ratio or is_overdue:
        return DirtyPart(first_dirty, end, ratio)
    return None


def group_by_size(
    segments: Iterable[T],
    extent_of: Callable[[T], tuple[int, int, int]],
    bytes_max: int,
    span_max: int,
) -> Iterator[list[T]]:
    """Yield groups of adjacent segments, each of which becomes one segment.

    `extent_of` returns the bytes of a segment, its first offset and the offset after it. A group
    has up to `bytes_max` before it is compacted, and up to `span_max` offsets.

    Source: Kafka, `Cleaner.groupSegmentsBySize`.
    """
    group: list[T] = []
    group_bytes = first_offset = 0
    for segment in segments:
        size, start, end = extent_of(segment)
        if group and (group_bytes + size > bytes_max or end - first_offset > span_max):
            yield group
            group = []
        if not group:
            group_bytes, first_offset = 0, start
        group.append(segment)
        group_bytes += size
    if group:
        yield group
