"""The header of a RecordBatch v2: sixty-one bytes before the records, big-endian.

    0  baseOffset            int64
    8  batchLength           int32   bytes after this field
    12 partitionLeaderEpoch  int32
    16 magic                 int8    2
    17 crc                   uint32  CRC-32C of everything from 21 to the end
    21 attributes            int16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                     6 delete horizon
    23 lastOffsetDelta       int32
    27 baseTimestamp         int64   milliseconds since 1970; with bit 6, when tombstones expire
    35 maxTimestamp          int64
    43 producerId            int64   -1: not idempotent
    51 producerEpoch         int16
    53 baseSequence          int32
    57 recordsCount          int32

The CRC excludes the first 21 bytes, so a broker sets base offset and leader epoch in place,
without a copy.

Source: Kafka documentation, "Message Format", Record Batch (KIP-98).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from logbroker.errors import CorruptBatch

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
"""The size of the header: 61 bytes."""

LENGTH_PREFIX_BYTES: Final = 12
"""The bytes that `batchLength` excludes: baseOffset and itself."""

CRC_START: Final = 21
MAGIC_V2: Final = 2
NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35

Buffer = bytes | bytearray | memoryview


class BatchHeader(NamedTuple):
    """The fields of a header, in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec number, 0 to 7; see `logbroker.records.compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_append_time(self) -> bool:
        """Whether all records have `max_timestamp`, the time of append (LogAppendTime)."""
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time when tombstones of the batch expire (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch contains a transaction marker instead of data."""
        return bool(self.attributes & CONTROL_FLAG)


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """Return the header at `offset` without a check of CRC or values.

    Raises:
        CorruptBatch: fewer than 61 bytes are left.
    """
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, offset))
    except struct.error:
        left = len(buffer) - offset
        raise CorruptBatch(
            f"{left} bytes are shorter than a batch header of {HEADER_BYTES}"
        ) from None


def crc_matches(batch: Buffer, expected: int) -> bool:
    """Return whether the CRC-32C of one whole batch is `expected`."""
    return crc32c(memoryview(batch)[CRC_START:]) == expected


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each whole batch of `buffer` with its header; skips a truncated last batch.

    A Fetch response may end inside a batch (KIP-74), so that is not an error.

    Raises:
        CorruptBatch: the length of a batch is less than that of a header.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptBatch(f"batch at {position} has the invalid length {header.batch_length}")
        if position + header.size > len(view):
            return
        yield header, view[position : position + header.size]
        position += header.size


def stamp_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Set the time of append of all records in place, and update the CRC.

    Source: KIP-32 (message.timestamp.type=LogAppendTime).
    """
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE_FLAG)
    stamp_max_timestamp(batch, now_ms)


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Set `maxTimestamp` in place, and update the CRC."""
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
