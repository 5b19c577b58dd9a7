"""Batches with a right CRC and wrong records, which no broker may store."""

from typing import Final

from logbroker.records.compression import Codec, compress
from tests.support.kafka.record_batches import LogRecord, batch_packed, framed, record_body

VALID_RECORD: Final = framed(record_body(LogRecord(0, 0, b"key", b"value")))


def batch_with(records: bytes, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch whose header claims `count` records of this codec."""
    return batch_packed(
        records, record_count=count, last_offset_delta=count - 1, attributes=int(codec)
    )


INVALID_BATCHES: Final = {
    "forty bytes 0xff": batch_with(b"\xff" * 40),
    "text marked as gzip": batch_with(b"not gzip", codec=Codec.GZIP),
    "a count of five with one record": batch_with(VALID_RECORD, 5),
    "a record longer than its batch": batch_with(VALID_RECORD[:-1]),
    "bytes behind the records": batch_with(VALID_RECORD + b"\0"),
    "a count of two billion": batch_with(b"", 2**31 - 1),
    "a count of two billion, compressed": batch_with(
        compress(Codec.ZSTD, VALID_RECORD), 2**31 - 1, Codec.ZSTD
    ),
    "offsets that skip one": batch_with(VALID_RECORD + framed(record_body(LogRecord(2, 0))), 2),
    "a few bytes that become very many": batch_with(
        compress(Codec.ZSTD, bytes(64 * 2**20)), codec=Codec.ZSTD
    ),
}
