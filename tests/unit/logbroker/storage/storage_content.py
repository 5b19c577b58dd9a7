"""Batches for the tests of storage, and helpers that read them back."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from logbroker.config import LogConfig
from logbroker.records.batch import BatchHeader, iter_batches
from logbroker.records.compression import Codec
from logbroker.records.file_span import FileSpan
from logbroker.records.record import NewRecord, Record, decode_records, encode_batch
from logbroker.storage.log_directory import LogDirectory, Owner
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.segment import LogSegment

OpenLog = Callable[..., PartitionLog]
"""A fixture that opens a log with the topic settings it is given."""

BASE_MS = 1_600_000_000_000

TOPIC_ID = UUID(int=1)


def open_directory(path: Path, topics: Mapping[str, UUID], config: LogConfig) -> LogDirectory:
    """Claim and load a data directory; the folders of other topics are removed."""
    owners = {topic_id: Owner(name, config) for name, topic_id in topics.items()}
    directory = LogDirectory.claim(path)
    try:
        directory.load(owners.get, BASE_MS)
    except BaseException:
        directory.release()
        raise
    return directory


def batch(
    *values: bytes, timestamps: Sequence[int] = (), codec: Codec = Codec.NONE, **producer: int
) -> memoryview:
    """One batch in a buffer of its own, as a connection would hold it."""
    times = timestamps or range(BASE_MS, BASE_MS + len(values))
    records = [
        NewRecord(timestamp, None, value) for timestamp, value in zip(times, values, strict=True)
    ]
    return memoryview(bytearray(encode_batch(records, codec=codec, **producer)))


def append_all(log: PartitionLog, batches: Iterable[memoryview], now_ms: int = BASE_MS) -> None:
    """Append and write one after the other."""
    for one in batches:
        log.append(one, now_ms)
        log.write()


def make_visible(log: PartitionLog) -> None:
    log.advance_high_watermark(log.flush())


def content(span: FileSpan | None) -> bytes:
    assert span is not None
    return os.pread(span.file.fileno(), span.length, span.position)


def file_content(segment: LogSegment) -> bytes:
    return segment.path.read_bytes()


def headers_of(segments: Iterable[LogSegment]) -> list[BatchHeader]:
    return [header for one in segments for header, _ in iter_batches(file_content(one))]


def records_of(log: PartitionLog) -> list[Record]:
    """Every record that a consumer reading from the start gets."""
    records: list[Record] = []
    offset = log.log_start_offset
    while (span := log.read(offset, 1 << 20, whole_batch=True)) is not None:
        for header, one in iter_batches(content(span)):
            records += [record for record in decode_records(one) if record.offset >= offset]
            offset = header.next_offset
    return records


def values_of(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in records_of(log)]
