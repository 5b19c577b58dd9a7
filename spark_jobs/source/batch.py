"""Batch reads of a log: `spark.read.format("rewind")`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from logbroker.client.raw import RawCluster, TopicPartition
from spark_jobs.log.client_errors import translate_client_errors
from spark_jobs.log.planning import LogView, Plan, plan_between
from spark_jobs.offsets.ranges import Losses
from spark_jobs.source.options import (
    LIMITS,
    BatchOptions,
    SourceOptions,
    read_batch_options,
    read_source_options,
)
from spark_jobs.source.partitions import as_partitions, log_losses, read_partition
from spark_jobs.source.query.filters import Narrowing, parse_filters
from spark_jobs.source.query.option_values import offsets_to_json


class PushedFilters:
    """The `pushFilters` method that Spark calls if `spark.sql.python.filterPushdown` is enabled.

    If it is disabled, Spark rejects every reader that overrides `pushFilters`, by comparing
    functions; `__func__` is Spark's own. Filters only narrow what is read, and Spark still applies
    them, so the result does not depend on this call.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "BatchReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the ranges, and return all filters."""
        self._reader.narrow_by(filters)
        return filters


class BatchReader(DataSourceReader):
    """Plans ranges with fixed ends in the driver, and reads them in tasks."""

    def __init__(
        self, source: SourceOptions, batch: BatchOptions, columns: tuple[str, ...]
    ) -> None:
        self._source = source
        self._batch = batch
        self._columns = columns
        self._narrowing = Narrowing()

    @property
    def pushFilters(self) -> Any:  # noqa: N802  (Spark's name)
        """See `PushedFilters`."""
        return PushedFilters(self)

    def narrow_by(self, filters: Iterable[Filter]) -> None:
        """Skip ranges and parts of ranges that no record passes."""
        self._narrowing = parse_filters(filters)

    def partitions(self) -> list[InputPartition]:
        """A task for each range.

        Raises:
            PipelineError: the log cannot be read as requested.
        """
        with translate_client_errors("cannot read the log"), _view(self._source) as view:
            plan = _plan(view, self._batch, self._source)
            found = view.offsets_at_times(self._narrowing.lookup_times(plan.ranges))
        ranges = self._narrowing.narrow(plan.ranges, found)
        return as_partitions(ranges, plan.topic_ids, self._source)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_partition(partition, self._source, self._columns)


def with_fixed_offsets(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a batch with its start and end as offsets in the current log.

    Every read with these options returns the same records.

    Raises:
        PipelineError: the log cannot be read as requested.
    """
    source, batch = read_source_options(options), read_batch_options(options)
    with translate_client_errors("cannot read the log"), _view(source) as view:
        ranges = _plan(view, batch, source).ranges
    topic_partitions = [TopicPartition(each.topic, each.partition) for each in ranges]
    starts = dict(zip(topic_partitions, (each.start for each in ranges), strict=True))
    ends = dict(zip(topic_partitions, (each.end for each in ranges), strict=True))
    kept = {name: text for name, text in options.items() if name.lower() not in LIMITS}
    return kept | {
        "startingOffsets": json.dumps(offsets_to_json(starts)),
        "endingOffsets": json.dumps(offsets_to_json(ends)),
    }


@contextmanager
def _view(source: SourceOptions) -> Iterator[LogView]:
    with RawCluster(source.properties) as cluster:
        yield LogView(cluster, source.choice, read_committed=source.read_committed)


def _plan(view: LogView, batch: BatchOptions, source: SourceOptions) -> Plan:
    losses = Losses(are_allowed=not source.fail_on_data_loss)
    plan = plan_between(view, batch.starting, batch.ending, losses)
    log_losses(losses)
    return plan
