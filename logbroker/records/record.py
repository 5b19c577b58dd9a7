"""Encodes and decodes the records of a batch.

    length          varint   bytes after this field
    attributes      int8     unused
    timestampDelta  varlong  from the batch's baseTimestamp
    offsetDelta     varint   from the batch's baseOffset
    key             varint length (-1: null), bytes
    value           varint length (-1: null), bytes
    headers         varint count, then of each: key (varint length, UTF-8), value (as above)

In a compressed batch, all records are one compressed block.

Source: Kafka documentation, "Message Format", Record (KIP-82, KIP-98).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from logbroker.errors import CorruptBatch
from logbroker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    BatchHeader,
    Buffer,
    read_header,
)
from logbroker.records.compression import Codec, compress, decompress
from logbroker.records.varint import encode_varint, encode_varlong, read_varint, read_varlong

Headers = tuple[tuple[str, bytes | None], ...]

RECORDS_BYTES_MAX: Final = 128 * 2**20
"""The default limit of decompressed records: a batch of the default `max.message.bytes` with a
compression ratio of 100 fits."""

_NULL: Final = -1
_ATTRIBUTES_BYTES: Final = 1


class NewRecord(NamedTuple):
    """A record without an offset; the timestamp is in milliseconds since 1970."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Record(NamedTuple):
    """A record with its offset; the timestamp is in milliseconds since 1970, -1 if missing."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def encode_batch(
    records: Sequence[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    """Encode a batch of at least one record with consecutive offsets from `base_offset`."""
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp_ms
    body = compress(codec, _encode_records(records, base_timestamp))
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body),
        leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=codec,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    crc = crc32c(body, crc32c(HEADER.pack(*header)[CRC_START:]))
    return HEADER.pack(*header._replace(crc=crc)) + body


def decode_records(batch: Buffer, bytes_max: int = RECORDS_BYTES_MAX) -> list[Record]:
    """Return the records of one whole batch without a check of its CRC.

    Records of a control batch are included. With LogAppendTime, all records have the batch's
    timestamp.

    Raises:
        CorruptBatch: the bytes are not one whole batch of magic 2, its records do not parse,
            or their decompressed size exceeds `bytes_max`.
    """
    return list(_iter_records(batch, bytes_max))


def first_record_at_or_after(
    batch: Buffer, timestamp_ms: int, offset_min: int, bytes_max: int = RECORDS_BYTES_MAX
) -> Record | None:
    """Return the first record with at least this timestamp and this offset, if any.

    Raises:
        CorruptBatch: as in `decode_records`; records after the result are not checked.
    """
    for record in _iter_records(batch, bytes_max):
        if record.timestamp_ms >= timestamp_ms and record.offset >= offset_min:
            return record
    return None


def _encode_records(records: Sequence[NewRecord], base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    for offset_delta, record in enumerate(records):
        body = b"".join(
            (
                b"\0",
                encode_varlong(record.timestamp_ms - base_timestamp),
                encode_varint(offset_delta),
                _encode_bytes(record.key),
                _encode_bytes(record.value),
                _encode_headers(record.headers),
            )
        )
        parts.append(encode_varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\x01" if value is None else encode_varint(len(value)) + value


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        parts.append(_encode_bytes(key.encode()))
        parts.append(_encode_bytes(value))
    return b"".join(parts)


def _iter_records(batch: Buffer, bytes_max: int) -> Iterator[Record]:
    header = read_header(batch)
    data = _plain_records(batch, header, bytes_max)
    append_time = header.max_timestamp if header.is_append_time else None
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _read_record(data, position, header)
            yield record if append_time is None else record._replace(timestamp_ms=append_time)
    except IndexError:
        raise CorruptBatch(f"batch at {header.base_offset}: its records are cut off") from None
    if position != len(data):
        raise CorruptBatch(
            f"batch at {header.base_offset}: {len(data) - position} bytes are left "
            f"after its {header.record_count} records"
        )


def _plain_records(batch: Buffer, header: BatchHeader, bytes_max: int) -> bytes:
    """Return the decompressed bytes of the records."""
    if header.magic != MAGIC_V2:
        raise CorruptBatch(f"batch has magic {header.magic}; allowed: {MAGIC_V2}")
    if header.size != len(batch):
        raise CorruptBatch(f"batch size is {header.size} in its header, but {len(batch)} bytes")
    try:
        codec = Codec(header.compression)
    except ValueError:
        raise CorruptBatch(f"batch has codec {header.compression}; allowed: 0 to 4") from None
    return decompress(codec, memoryview(batch)[HEADER_BYTES:], bytes_max)


def _read_record(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = read_varint(data, position)
    end = position + length
    timestamp_delta, position = read_varlong(data, position + _ATTRIBUTES_BYTES)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    headers: Headers = ()
    if data[position]:
        headers, position = _read_headers(data, position)
    else:
        position += 1
    offset = header.base_offset + offset_delta
    # Slicing ignores a length past the end of `data`; this check does not.
    if position != end or end > len(data):
        raise CorruptBatch(f"record at offset {offset} does not have its length of {length} bytes")
    return Record(offset, header.base_timestamp + timestamp_delta, key, value, headers), end


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    # Nearly every length has one byte and is not null: save a call.
    if (byte := data[position]) < 0x80 and not byte & 1:
        end = position + 1 + (byte >> 1)
        return data[position + 1 : end], end
    length, position = read_varint(data, position)
    if length < 0:
        if length != _NULL:
            raise CorruptBatch(f"a record's field has length {length}; minimum: {_NULL}")
        return None, position
    end = position + length
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if count < 0:
        raise CorruptBatch(f"a record has {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        headers.append((_header_key(key), value))
    return tuple(headers), position


def _header_key(key: bytes | None) -> str:
    if key is None:
        raise CorruptBatch("a record has a header whose key is null")
    # As in Java: keys are not validated at append, and one that is not UTF-8 must not make a
    # whole batch unreadable.
    return key.decode(errors="replace")
