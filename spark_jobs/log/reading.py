"""Reads a range of offsets as Arrow batches: what each task does, and nothing of it needs Spark."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from logbroker.client.errors import OffsetGone, UnknownTopic
from logbroker.client.raw import RawCluster, RawReader, TopicPartition
from spark_jobs.decode import DecodedChunk, UnreadableBatch, decode
from spark_jobs.decode.columns import arrow_schema, timestamps
from spark_jobs.log.client_errors import translated
from spark_jobs.offsets.ranges import Losses, OffsetRange

_log: Final = logging.getLogger(__name__)

BATCH_BYTES: Final = 3 * 1024 * 1024
"""Of records in a batch: Spark takes batches of 2 to 4 MB fastest, as measured."""

TIMEOUT_S: Final = 120.0
"""How long the log may say nothing: Spark's `spark.network.timeout`, as its connector has it."""


def read_range(
    properties: Mapping[str, str],
    wanted: OffsetRange,
    *,
    columns: Sequence[str],
    losses: Losses,
    topic_id: UUID | None = None,
    read_committed: bool = False,
    timeout_s: float = TIMEOUT_S,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of a range in their order, in batches with `columns` (see `columns.TYPES`).

    `properties` are a Kafka client's; `topic_id`, where it is given, is that of the topic that the
    range is of. A batch has `batch_bytes` of records at most, or one record.

    Raises:
        InvalidOption: the properties cannot be.
        DataLost: offsets of the range, or the topic, are gone, or a batch cannot be read, and
            `losses` allows none.
        SourceFailed: the log did not answer for `timeout_s`, or refused, or is so damaged that
            nobody can tell where it goes on.
    """
    place = TopicPartition(wanted.topic, wanted.partition)
    at, end = wanted.start, wanted.end
    with (
        translated(f"{wanted} cannot be read"),
        RawCluster(properties, timeout_s=timeout_s) as cluster,
    ):
        while at < wanted.end:
            reader = RawReader(
                cluster, place, at, end, read_committed=read_committed, topic_id=topic_id
            )
            try:
                with reader:
                    for chunk in _chunks(reader, end, columns, batch_bytes):
                        at = chunk.next_offset
                        if len(chunk.offsets):
                            yield _as_batch(chunk, place, columns)
                at, end = end, wanted.end
            except UnreadableBatch as bad:
                if bad.base_offset > at:
                    # What was decoded together with it has not come: it is read by itself first.
                    end = bad.base_offset
                else:
                    at = _pass_over_batch(replace(wanted, start=at), bad, losses)
                    end = wanted.end
            except OffsetGone as gone:
                at = _pass_over(replace(wanted, start=at), gone, losses)
                end = wanted.end
            except UnknownTopic as error:
                losses.add(replace(wanted, start=at), str(error))
                return


def _chunks(
    reader: RawReader, end: int, columns: Sequence[str], batch_bytes: int
) -> Iterator[DecodedChunk]:
    for raw in reader:
        yield from decode(
            raw.records,
            start=raw.first_wanted,
            end=end,
            wanted=columns,
            aborted=raw.aborted,
            chunk_bytes=batch_bytes,
        )


def _pass_over(left: OffsetRange, gone: OffsetGone, losses: Losses) -> int:
    """The offset to go on at, with what is missing before it noted."""
    is_behind = gone.log_start > left.start
    next_offset = min(gone.log_start, left.end) if is_behind else left.end
    lost = OffsetRange(left.topic, left.partition, left.start, next_offset)
    losses.add(lost, f"the log has offsets [{gone.log_start}, {gone.log_end})")
    return next_offset


def _pass_over_batch(left: OffsetRange, bad: UnreadableBatch, losses: Losses) -> int:
    """The offset to go on at, with the batch that `left` begins in noted as missing."""
    next_offset = min(bad.next_offset, left.end)
    lost = replace(left, end=next_offset)
    losses.add(lost, str(bad))
    _log.warning("%s is passed over: %s", lost, bad)
    return next_offset


def _as_batch(chunk: DecodedChunk, place: TopicPartition, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = [_column(name, chunk, place) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _column(name: str, chunk: DecodedChunk, place: TopicPartition) -> pa.Array:
    match name:
        case "key":
            return chunk.keys
        case "value":
            return chunk.values
        case "headers":
            return chunk.headers
        case "topic":
            return pa.repeat(place.topic, len(chunk.offsets))
        case "partition":
            return pa.array(np.full(len(chunk.offsets), place.partition, np.int32))
        case "offset":
            return pa.array(chunk.offsets)
        case "timestamp":
            return timestamps(chunk.timestamps_ms)
    assert name == "timestampType", name
    return pa.array(chunk.timestamp_types.astype(np.int32))
