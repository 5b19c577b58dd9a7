"""Streaming reads of a log: `spark.readStream.format("rewind")`.

Spark stores the position in its checkpoint, as JSON such as {"orders":{"0":12}}; there is no other
state. A retried or restarted micro-batch has the same offsets.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from logbroker.client.raw import LATEST, RawCluster, TopicPartition
from spark_jobs.log.client_errors import translate_client_errors
from spark_jobs.log.planning import LogView, require_chosen
from spark_jobs.offsets.admission import (
    PARTITION_GONE,
    TriggerDelay,
    limit_ends,
    ranges_between,
    truncated_at,
)
from spark_jobs.offsets.limits import AtOffsets, Limit
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import Offsets
from spark_jobs.source.options import SourceOptions, StreamOptions
from spark_jobs.source.partitions import as_partitions, log_losses, read_partition
from spark_jobs.source.query.option_values import offsets_from_json, offsets_to_json

Json = dict[str, dict[str, int]]
_FAILED: Final = "cannot read the log"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver as long as a query runs; its copies in tasks only read.

    If Spark restarts before it has committed the first micro-batch, it requests the initial offset
    again, and reads from there to the end that it had stored. For a stream that starts at the end
    of the log, the initial offset would be later by then, and records in between would be skipped.
    So the first micro-batch of such a stream is empty and fixes the start.
    """

    def __init__(
        self, source: SourceOptions, stream: StreamOptions, columns: tuple[str, ...]
    ) -> None:
        self._source = source
        self._stream = stream
        self._columns = columns
        self._cluster: RawCluster | None = None
        self._initial: Offsets | None = None
        self._is_pinned = not _may_be_end(stream.starting)
        self._is_available_now = False
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._trigger_delay = TriggerDelay(stream.min_offsets or 0, stream.max_delay_s)

    def initialOffset(self) -> Json:  # noqa: N802  (Spark's name, as those below)
        """Where a new query starts; constant for the life of this reader.

        Raises:
            PipelineError: a topic does not exist, or see `LogView.resolve_limit`.
        """
        if self._initial is None:
            with translate_client_errors(_FAILED):
                _, partitions = require_chosen(self._view)
                bounds = self._view.bounds(partitions)
                self._initial = self._view.resolve_limit(self._stream.starting, bounds)
        return offsets_to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark's limits are exclusive; this one distinguishes our options from `Trigger.Once`."""
        if self._stream.max_offsets is not None:
            return ReadMaxRows(self._stream.max_offsets)
        if self._stream.min_offsets is not None:
            return ReadMinRows(self._stream.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end offsets of the next lookup are final."""
        self._is_available_now = True

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """The end of the next micro-batch from `start`; `start` itself if there is none.

        Raises:
            PipelineError: a partition no longer exists or ends before `start`, and losses are not
                allowed.
        """
        starts = offsets_from_json(start)
        with translate_client_errors(_FAILED):
            self._latest = self._available_ends(starts)
            if not self._is_pinned and starts == self._initial:
                self._is_pinned = True
                return start
            return offsets_to_json(self._admitted_ends(starts, self._latest, limit))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The last known end of the log, for Spark's progress reports."""
        return None if self._latest is None else offsets_to_json(self._latest)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """A task for each range of a micro-batch.

        Raises:
            PipelineError: a part is gone, and losses are not allowed.
        """
        starts, ends = offsets_from_json(start), offsets_from_json(end)
        if not self._is_pinned and starts == self._initial:
            # Stored before a restart: the empty first micro-batch.
            self._is_pinned = True
            return []
        losses = Losses(are_allowed=not self._source.fail_on_data_loss)
        with translate_client_errors(_FAILED):
            topics = self._view.topics()
            bounds = self._view.bounds(
                self._view.partitions(topics) & (starts.keys() | ends.keys())
            )
        ranges = ranges_between(starts, ends, bounds, losses)
        log_losses(losses)
        ids = {topic: plan.topic_id for topic, plan in topics.items()}
        return as_partitions(ranges, ids, self._source)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_partition(partition, self._source, self._columns)

    def stop(self) -> None:
        """Close the connections to brokers."""
        if self._cluster is not None:
            self._cluster.close()

    @property
    def _view(self) -> LogView:
        if self._cluster is None:
            self._cluster = RawCluster(self._source.properties)
        return LogView(
            self._cluster, self._source.choice, read_committed=self._source.read_committed
        )

    def _available_ends(self, starts: Mapping[TopicPartition, int]) -> Offsets:
        """The ends up to which to read; with AvailableNow, those of the first lookup."""
        if self._target is not None:
            return self._target
        ends = self._current_ends(starts)
        self._check_losses(starts, ends)
        if self._is_available_now:
            self._target = ends
        return ends

    def _current_ends(self, starts: Mapping[TopicPartition, int]) -> Offsets:
        for _ in range(self._source.fetch_attempts - 1):
            ends = self._view.end_offsets(self._view.partitions(self._view.topics()))
            if all(ends.get(tp, -1) >= start for tp, start in starts.items()):
                return ends
            # A newly elected leader may not know the end yet (KAFKA-7703).
            time.sleep(self._source.retry_interval_s)
        return self._view.end_offsets(self._view.partitions(self._view.topics()))

    def _check_losses(self, starts: Mapping[TopicPartition, int], ends: Offsets) -> None:
        losses = Losses(are_allowed=not self._source.fail_on_data_loss)
        for tp, start in sorted(starts.items()):
            if tp not in ends:
                losses.add(OffsetRange(*tp, start, start), PARTITION_GONE)
            elif ends[tp] < start:
                losses.add(OffsetRange(*tp, start, start), truncated_at(ends[tp]))

    def _admitted_ends(
        self, starts: Mapping[TopicPartition, int], ends: Offsets, limit: ReadLimit
    ) -> Mapping[TopicPartition, int]:
        """The ends that the options allow for this micro-batch."""
        if isinstance(limit, ReadAllAvailable):
            return ends
        known = {**self._view.first_offsets(ends.keys() - starts.keys()), **starts}
        waiting = sum(max(end - known[tp], 0) for tp, end in ends.items())
        # AvailableNow would end without the delayed records.
        is_delayable = self._stream.min_offsets is not None and not self._is_available_now
        if is_delayable and not self._trigger_delay.admits(waiting, time.monotonic()):
            return starts
        return limit_ends(limit.max_rows, known, ends) if isinstance(limit, ReadMaxRows) else ends


def _may_be_end(limit: Limit) -> bool:
    """Whether a stream may start at the end of a partition."""
    if not isinstance(limit, AtOffsets):
        return limit.or_latest
    offsets = limit.offsets
    return LATEST in ([offsets] if isinstance(offsets, int) else offsets.values())
