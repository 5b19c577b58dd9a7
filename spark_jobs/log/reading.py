"""Reads a range of offsets as Arrow batches, as tasks do; independent of Spark."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from logbroker.client.errors import DamagedFraming, OffsetGone, UnknownTopic
from logbroker.client.raw import RawCluster, RawReader, TopicPartition
from logbroker.client.raw.unreadable_batches import next_readable
from spark_jobs.decode import DecodedChunk, UnreadableBatch, decode
from spark_jobs.decode.columns import arrow_schema, timestamps
from spark_jobs.log.client_errors import translate_client_errors
from spark_jobs.offsets.ranges import Losses, OffsetRange

_log: Final = logging.getLogger(__name__)

BATCH_BYTES: Final = 3 * 1024 * 1024
"""Bytes of records per batch: Spark is fastest with batches of 2 to 4 MB, as measured."""

TIMEOUT_S: Final = 120.0
"""How long the log may be silent: the default of `spark.network.timeout`."""


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
    """The records of a range in their order, in batches with `columns` (see `decode.columns`).

    `properties` are those of a Kafka client. `topic_id` is the expected id of the topic. A batch
    has at most `batch_bytes` of records, or one record.

    Raises:
        InvalidOption: the properties are invalid.
        DataLost: offsets of the range, or the topic, are gone, or a batch cannot be read, and
            `losses` allows none.
        SourceFailed: the log did not answer for `timeout_s`, rejected a request, or is so damaged
            that its batches are not consecutive.
    """
    tp = TopicPartition(wanted.topic, wanted.partition)
    at, end = wanted.start, wanted.end
    with (
        translate_client_errors(f"cannot read {wanted}"),
        RawCluster(properties, timeout_s=timeout_s) as cluster,
    ):
        while at < wanted.end:
            reader = RawReader(
                cluster, tp, at, end, read_committed=read_committed, topic_id=topic_id
            )
            try:
                with reader:
                    for chunk in _chunks(reader, end, columns, batch_bytes):
                        at = chunk.next_offset
                        if len(chunk.offsets):
                            yield _as_batch(chunk, tp, columns)
                at, end = end, wanted.end
            except UnreadableBatch as bad:
                if bad.base_offset > at:
                    # Batches decoded with it were not returned: read them first.
                    end = bad.base_offset
                else:
                    at = _skip_batch(replace(wanted, start=at), bad, losses)
                    end = wanted.end
            except DamagedFraming as bad:
                behind = next_readable(cluster, tp, at, wanted.end)
                if behind == at:
                    raise
                losses.add(replace(wanted, start=at, end=behind), str(bad))
                _log.warning("skipping offsets %s to %s of %s: %s", at, behind - 1, tp, bad)
                at, end = behind, wanted.end
            except OffsetGone as gone:
                at = _skip_deleted(replace(wanted, start=at), gone, losses)
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


def _skip_deleted(left: OffsetRange, gone: OffsetGone, losses: Losses) -> int:
    """The next offset to read, after recording the deleted offsets as lost."""
    is_behind = gone.log_start > left.start
    next_offset = min(gone.log_start, left.end) if is_behind else left.end
    lost = OffsetRange(left.topic, left.partition, left.start, next_offset)
    losses.add(lost, f"the log has offsets [{gone.log_start}, {gone.log_end})")
    return next_offset


def _skip_batch(left: OffsetRange, bad: UnreadableBatch, losses: Losses) -> int:
    """The next offset to read, after recording the batch at the start of `left` as lost."""
    next_offset = min(bad.next_offset, left.end)
    lost = replace(left, end=next_offset)
    losses.add(lost, str(bad))
    _log.warning("skipping %s: %s", lost, bad)
    return next_offset


def _as_batch(chunk: DecodedChunk, tp: TopicPartition, columns: Sequence[str]) -> pa.RecordBatch:
    arrays = [_column(name, chunk, tp) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _column(name: str, chunk: DecodedChunk, tp: TopicPartition) -> pa.Array:
    match name:
        case "key":
            return chunk.keys
        case "value":
            return chunk.values
        case "headers":
            return chunk.headers
        case "topic":
            return pa.repeat(tp.topic, len(chunk.offsets))
        case "partition":
            return pa.array(np.full(len(chunk.offsets), tp.partition, np.int32))
        case "offset":
            return pa.array(chunk.offsets)
        case "timestamp":
            return timestamps(chunk.timestamps_ms)
    assert name == "timestampType", name
    return pa.array(chunk.timestamp_types.astype(np.int32))
