"""Record batches of any kind, also of kinds that no producer writes."""

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from logbroker.records.batch import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from logbroker.records.compression import Codec, compress
from logbroker.records.varint import encode_varint, encode_varlong

ABORT = 0
COMMIT = 1

RawHeaders = tuple[tuple[bytes | None, bytes | None], ...]


class LogRecord(NamedTuple):
    """A record with its position in the batch."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None = None
    value: bytes | None = None
    headers: RawHeaders = ()


def octets(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def record_body(record: LogRecord) -> bytes:
    headers = b"".join(octets(key) + octets(value) for key, value in record.headers)
    return b"".join(
        (
            b"\0",
            encode_varlong(record.timestamp_delta),
            encode_varint(record.offset_delta),
            octets(record.key),
            octets(record.value),
            encode_varint(len(record.headers)),
            headers,
        )
    )


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def batch_of(
    records: Sequence[LogRecord],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: Codec = Codec.NONE,
    **fields: int,
) -> bytes:
    """Return a batch with `records`, which may skip offsets, and `fields` of the header."""
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset_delta
    plain = b"".join(framed(record_body(record)) for record in records)
    return batch_around(
        plain,
        codec=codec,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        **{"record_count": len(records), **fields},
    )


def batch_around(
    plain: bytes, *, codec: Codec = Codec.NONE, flags: int = 0, **fields: int
) -> bytes:
    """Return a batch with arbitrary bytes as its records and a correct CRC."""
    return batch_packed(compress(codec, plain), attributes=codec | flags, **fields)


def batch_packed(packed: bytes, **fields: int) -> bytes:
    """Return a batch with the bytes `packed` after its header."""
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(packed),
        leader_epoch=-1,
        magic=MAGIC_V2,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )._replace(**fields)
    crc = crc32c(packed, crc32c(HEADER.pack(*header)[CRC_START:]))
    return HEADER.pack(*header._replace(crc=crc)) + packed


def marker(base_offset: int, producer_id: int, kind: int) -> bytes:
    """Return the control batch of a transaction's end. `kind` is ABORT or COMMIT."""
    record = LogRecord(0, 0, kind.to_bytes(4, "big"), bytes(6))
    return batch_of(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        flags=CONTROL_FLAG | TRANSACTIONAL_FLAG,
    )
