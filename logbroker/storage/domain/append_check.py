"""Explains why a batch is rejected."""

from logbroker.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    RequestRefused,
    UnsupportedCompression,
    UnsupportedForMessageFormat,
)
from logbroker.records.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_matches,
    read_header,
)

MAGIC_AT = 16
PLAIN_ATTRIBUTES_MASK = 0x7F
"""The defined attribute bits: codec, timestamp type, transaction, control, delete horizon."""

CODEC_MAX = 4
"""The last codec, zstd; the maximum of the attributes under `PLAIN_ATTRIBUTES_MASK`."""


def rejection(batch: memoryview, max_message_bytes: int, segment_bytes: int) -> RequestRefused:
    """Return the error of a batch that `PartitionLog.append` rejects.

    The limits are the topic's `max.message.bytes` and `segment.bytes`.
    The order of the checks is Kafka's: format, number of batches, size, CRC, header fields.

    Source: Kafka, `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`,
    `LogValidator.validateBatch`.
    """
    if len(batch) > MAGIC_AT and batch[MAGIC_AT] != MAGIC_V2:
        return UnsupportedForMessageFormat(f"magic is {batch[MAGIC_AT]}; allowed: 2")
    if len(batch) < HEADER_BYTES:
        return CorruptBatch(f"{len(batch)} bytes are shorter than a batch header of {HEADER_BYTES}")
    header = read_header(batch)
    if HEADER_BYTES <= header.size < len(batch):
        surplus = len(batch) - header.size
        return InvalidRecord(f"{surplus} bytes follow the batch; allowed: one batch")
    if header.size != len(batch):
        return CorruptBatch(f"batch size is {header.size} in its header, but {len(batch)} bytes")
    return _check_size(header.size, max_message_bytes, segment_bytes) or _check_content(
        batch, header
    )


def _check_size(size: int, max_message_bytes: int, segment_bytes: int) -> RequestRefused | None:
    if size > max_message_bytes:
        return MessageTooLarge(
            f"the batch has {size} bytes; max.message.bytes is {max_message_bytes}"
        )
    if size > segment_bytes:
        return RecordListTooLarge(f"the batch has {size} bytes; segment.bytes is {segment_bytes}")
    return None


def _check_content(batch: memoryview, header: BatchHeader) -> RequestRefused:
    if not crc_matches(batch, header.crc):
        return CorruptBatch(f"the CRC-32C of the batch is not {header.crc}, as its header says")
    if header.base_offset != 0:
        return InvalidRecord(f"baseOffset is {header.base_offset}; allowed from producers: 0")
    if not 0 < header.record_count == header.last_offset_delta + 1:
        return InvalidRecord(
            f"recordsCount is {header.record_count} and lastOffsetDelta "
            f"{header.last_offset_delta}; the count is one more, and at least 1"
        )
    return _check_attributes(header)


def _check_attributes(header: BatchHeader) -> RequestRefused:
    if header.is_append_time:
        return InvalidTimestamp("the batch has LogAppendTime, which only the broker may set")
    if header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
        return InvalidRecord("transactional and control batches are not supported")
    if header.compression > CODEC_MAX:
        return UnsupportedCompression(f"codec {header.compression}; allowed: 0 to {CODEC_MAX}")
    return InvalidRecord(
        f"attributes {header.attributes}, producer epoch {header.producer_epoch}, "
        f"base sequence {header.base_sequence} are invalid for producer {header.producer_id}"
    )
