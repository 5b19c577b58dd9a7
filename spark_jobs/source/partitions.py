"""The tasks of a read."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_jobs.log.reading import read_range
from spark_jobs.offsets.ranges import Losses, OffsetRange, split_ranges
from spark_jobs.source.options import SourceOptions

_log: Final = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """The offsets that one task reads, and the expected id of the topic."""

    def __init__(self, wanted: OffsetRange, topic_id: UUID | None) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted
        self.topic_id = topic_id


def as_partitions(
    ranges: Iterable[OffsetRange], topic_ids: Mapping[str, UUID | None], options: SourceOptions
) -> list[InputPartition]:
    """A partition for each part of the ranges, split by the options."""
    parts = split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    return [RangePartition(each, topic_ids[each.topic]) for each in parts]


def read_partition(
    partition: InputPartition, options: SourceOptions, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The records of a partition; none for the placeholder that Spark adds to an empty plan."""
    if not isinstance(partition, RangePartition):
        return
    losses = Losses(are_allowed=not options.fail_on_data_loss)
    yield from read_range(
        options.properties,
        partition.wanted,
        columns=columns,
        losses=losses,
        topic_id=partition.topic_id,
        read_committed=options.read_committed,
        timeout_s=options.poll_timeout_s,
    )
    log_losses(losses)


def log_losses(losses: Losses) -> None:
    """Log the skipped offsets."""
    for each in losses.ranges:
        _log.warning("skipped %s: deleted or unreadable", each)
