"""Reads a log once: `spark.read.format("rewind")`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from logbroker.client.raw import RawCluster, TopicPartition
from spark_jobs.log.client_errors import translated
from spark_jobs.log.planning import LogView, Plan, plan_between
from spark_jobs.offsets.ranges import Losses
from spark_jobs.source.options import (
    LIMITS,
    BatchOptions,
    SourceOptions,
    read_batch_options,
    read_source_options,
)
from spark_jobs.source.partitions import as_partitions, read_partition, tell_of
from spark_jobs.source.query.filters import Narrowing, narrowing
from spark_jobs.source.query.option_values import as_json


class PushedFilters:
    """What Spark calls with the filters of a query, where `spark.sql.python.filterPushdown` is on.

    Where it is off, Spark refuses every reader that overrides `pushFilters`: it compares functions,
    and finds here the one that it gave. Filters only narrow what is read and stay Spark's to apply,
    so that nothing depends on whether this is called.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: "BatchReader") -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the ranges, and hand all filters back."""
        self._reader.narrow_by(filters)
        return filters


class BatchReader(DataSourceReader):
    """Plans ranges of offsets in the driver, where both ends are fixed, and reads them in tasks."""

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
        """Leave out what no record passes."""
        self._narrowing = narrowing(filters)

    def partitions(self) -> list[InputPartition]:
        """A task for each range.

        Raises:
            PipelineError: the log cannot be read as asked.
        """
        with translated("the log cannot be read"), _view(self._source) as view:
            plan = _plan(view, self._batch, self._source)
            found = view.at_times(self._narrowing.times(plan.ranges))
        ranges = self._narrowing.narrow(plan.ranges, found)
        return as_partitions(ranges, plan.topic_ids, self._source)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_partition(partition, self._source, self._columns)


def with_fixed_offsets(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a batch with both ends as offsets, by the log as it is now.

    Whoever reads with these, however often, reads the same records.

    Raises:
        PipelineError: the log cannot be read as asked.
    """
    source, batch = read_source_options(options), read_batch_options(options)
    with translated("the log cannot be read"), _view(source) as view:
        ranges = _plan(view, batch, source).ranges
    places = [TopicPartition(each.topic, each.partition) for each in ranges]
    starts = dict(zip(places, (each.start for each in ranges), strict=True))
    ends = dict(zip(places, (each.end for each in ranges), strict=True))
    kept = {name: text for name, text in options.items() if name.lower() not in LIMITS}
    return kept | {
        "startingOffsets": json.dumps(as_json(starts)),
        "endingOffsets": json.dumps(as_json(ends)),
    }


@contextmanager
def _view(source: SourceOptions) -> Iterator[LogView]:
    with RawCluster(source.properties) as cluster:
        yield LogView(cluster, source.choice, read_committed=source.read_committed)


def _plan(view: LogView, batch: BatchOptions, source: SourceOptions) -> Plan:
    losses = Losses(are_allowed=not source.fail_on_data_loss)
    plan = plan_between(view, batch.starting, batch.ending, losses)
    tell_of(losses)
    return plan
