"""Reads a log as it grows: `spark.readStream.format("rewind")`.

Spark keeps what was read in its checkpoint, as JSON such as {"orders":{"0":12}}; nothing else is
kept anywhere. A micro-batch that is tried again, or that follows a restart, has the same offsets.
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
from spark_jobs.log.client_errors import translated
from spark_jobs.log.planning import LogView, everything
from spark_jobs.offsets.admission import GONE, Pace, cut_to, limited, ranges_between
from spark_jobs.offsets.limits import AtOffsets, Limit
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import Offsets
from spark_jobs.source.options import SourceOptions, StreamOptions
from spark_jobs.source.partitions import as_partitions, read_partition, tell_of
from spark_jobs.source.query.option_values import as_json, from_json

Json = dict[str, dict[str, int]]
_FAILED: Final = "the log cannot be read"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in the driver as long as a query does; its copies in tasks only read.

    Spark asks for the initial offset again if it restarts before the first micro-batch is
    committed, and reads up to the offsets it had noted for it. Where a stream starts at the end of
    the log, that end is another by then, and what came meanwhile would be passed over. So the first
    micro-batch of such a stream is empty, and pins where it starts.
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
        self._pace = Pace(stream.min_offsets or 0, stream.max_delay_s)

    def initialOffset(self) -> Json:  # noqa: N802  (Spark's name, as those below)
        """Where a new query starts; the same as long as this reader lives.

        Raises:
            PipelineError: a topic is not there, or see `LogView.resolve`.
        """
        if self._initial is None:
            with translated(_FAILED):
                _, partitions = everything(self._view)
                bounds = self._view.bounds(partitions)
                self._initial = self._view.resolve(self._stream.starting, bounds)
        return as_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark's own limits go one at a time; this one tells our options from `Trigger.Once`."""
        if self._stream.max_offsets is not None:
            return ReadMaxRows(self._stream.max_offsets)
        if self._stream.min_offsets is not None:
            return ReadMinRows(self._stream.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From the first look on, the log is taken to grow no more."""
        self._is_available_now = True

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the next micro-batch from `start` ends: at `start`, if there is to be none.

        Raises:
            PipelineError: a partition is gone, or ends before `start`, and none may be lost.
        """
        starts = from_json(start)
        with translated(_FAILED):
            self._latest = self._ends(starts)
            if not self._is_pinned and starts == self._initial:
                self._is_pinned = True
                return start
            return as_json(self._admitted(starts, self._latest, limit))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The end of the log, as far as is known; for the progress that Spark tells of."""
        return None if self._latest is None else as_json(self._latest)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """A task for each range of a micro-batch.

        Raises:
            PipelineError: something of it is gone, and none may be lost.
        """
        starts, ends = from_json(start), from_json(end)
        if not self._is_pinned and starts == self._initial:
            # Noted before a restart: it is the empty one.
            self._is_pinned = True
            return []
        losses = Losses(are_allowed=not self._source.fail_on_data_loss)
        with translated(_FAILED):
            topics = self._view.topics()
            bounds = self._view.bounds(
                self._view.partitions(topics) & (starts.keys() | ends.keys())
            )
        ranges = ranges_between(starts, ends, bounds, losses)
        tell_of(losses)
        ids = {topic: plan.topic_id for topic, plan in topics.items()}
        return as_partitions(ranges, ids, self._source)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_partition(partition, self._source, self._columns)

    def stop(self) -> None:
        """Leave the brokers."""
        if self._cluster is not None:
            self._cluster.close()

    @property
    def _view(self) -> LogView:
        if self._cluster is None:
            self._cluster = RawCluster(self._source.properties)
        return LogView(
            self._cluster, self._source.choice, read_committed=self._source.read_committed
        )

    def _ends(self, starts: Mapping[TopicPartition, int]) -> Offsets:
        """How far the log may be read: with AvailableNow as far as at the first look."""
        if self._target is not None:
            return self._target
        ends = self._seen_ends(starts)
        self._note_losses(starts, ends)
        if self._is_available_now:
            self._target = ends
        return ends

    def _seen_ends(self, starts: Mapping[TopicPartition, int]) -> Offsets:
        for _ in range(self._source.fetch_attempts - 1):
            ends = self._view.ends(self._view.partitions(self._view.topics()))
            if all(ends.get(place, -1) >= start for place, start in starts.items()):
                return ends
            # A leader that was elected just now may not know the end yet (KAFKA-7703).
            time.sleep(self._source.retry_interval_s)
        return self._view.ends(self._view.partitions(self._view.topics()))

    def _note_losses(self, starts: Mapping[TopicPartition, int], ends: Offsets) -> None:
        losses = Losses(are_allowed=not self._source.fail_on_data_loss)
        for place, start in sorted(starts.items()):
            if place not in ends:
                losses.add(OffsetRange(*place, start, start), GONE)
            elif ends[place] < start:
                losses.add(OffsetRange(*place, start, start), cut_to(ends[place]))

    def _admitted(
        self, starts: Mapping[TopicPartition, int], ends: Offsets, limit: ReadLimit
    ) -> Mapping[TopicPartition, int]:
        """As much of what there is as the options let through."""
        if isinstance(limit, ReadAllAvailable):
            return ends
        known = {**self._view.firsts(ends.keys() - starts.keys()), **starts}
        waiting = sum(max(end - known[place], 0) for place, end in ends.items())
        # AvailableNow takes what there is, and would end with the rest unread.
        is_held_back = self._stream.min_offsets is not None and not self._is_available_now
        if is_held_back and not self._pace.lets_through(waiting, time.monotonic()):
            return starts
        return limited(limit.max_rows, known, ends) if isinstance(limit, ReadMaxRows) else ends


def _may_be_end(limit: Limit) -> bool:
    """Whether a stream may start at the end of a partition."""
    if not isinstance(limit, AtOffsets):
        return limit.or_latest
    offsets = limit.offsets
    return LATEST in ([offsets] if isinstance(offsets, int) else offsets.values())
