"""Why a batch may not be appended."""

from logbroker.config import LogConfig
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
"""The attribute bits that say something: codec, timestamp type, transaction, control, horizon."""

CODEC_MAX = 4
"""The last codec, zstd; with `PLAIN_ATTRIBUTES_MASK` all that attributes may say at append."""


def refusal(batch: memoryview, config: LogConfig) -> RequestRefused:
    """What is wrong with a batch that `PartitionLog.append` found unfit.

    The order is Kafka's: format, count of batches, size, CRC, then what the header says.

    Source: Kafka, `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`,
    `LogValidator.validateBatch`.
    """
    if len(batch) > MAGIC_AT and batch[MAGIC_AT] != MAGIC_V2:
        return UnsupportedForMessageFormat(f"magic is {batch[MAGIC_AT]}; only 2 is stored")
    if len(batch) < HEADER_BYTES:
        return CorruptBatch(f"{len(batch)} bytes are no batch; its header has {HEADER_BYTES}")
    header = read_header(batch)
    return _bad_size(len(batch), header, config) or _bad_content(batch, header)


def _bad_size(size: int, header: BatchHeader, config: LogConfig) -> RequestRefused | None:
    if HEADER_BYTES <= header.size < size:
        return InvalidRecord(f"{size - header.size} bytes follow the batch; one batch is allowed")
    if header.size != size:
        return CorruptBatch(f"the batch announces {header.size} bytes and has {size}")
    if size > config.max_message_bytes:
        allowed = config.max_message_bytes
        return MessageTooLarge(f"the batch has {size} bytes, max.message.bytes is {allowed}")
    if size > config.segment_bytes:
        allowed = config.segment_bytes
        return RecordListTooLarge(f"the batch has {size} bytes, segment.bytes is {allowed}")
    return None


def _bad_content(batch: memoryview, header: BatchHeader) -> RequestRefused:
    if not crc_matches(batch, header.crc):
        return CorruptBatch(f"the CRC-32C is not the {header.crc} that the batch names")
    if header.base_offset != 0:
        return InvalidRecord(f"baseOffset is {header.base_offset}; a producer sends 0")
    if not 0 < header.record_count == header.last_offset_delta + 1:
        return InvalidRecord(
            f"recordsCount is {header.record_count} and lastOffsetDelta "
            f"{header.last_offset_delta}; the count is one more, and at least 1"
        )
    return _bad_attributes(header)


def _bad_attributes(header: BatchHeader) -> RequestRefused:
    if header.is_append_time:
        return InvalidTimestamp("the batch claims LogAppendTime, which the broker alone sets")
    if header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
        return InvalidRecord("transactional and control batches are not taken")
    if header.compression > CODEC_MAX:
        return UnsupportedCompression(f"codec {header.compression}; known are 0 to {CODEC_MAX}")
    return InvalidRecord(
        f"attributes {header.attributes}, producer epoch {header.producer_epoch}, "
        f"base sequence {header.base_sequence}: not allowed from producer {header.producer_id}"
    )
