"""What a task of the load does: it reads a range of the log and writes it, without the JVM.

What goes back to the driver is a row for each range, which names the files: records never do.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.errors import DataLost, SourceFailed
from spark_jobs.jobs.hour_files import HourFiles
from spark_jobs.log.reading import read_range
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.storage import open_store
from spark_jobs.tables.manifest import DataFile

OUTCOME_SCHEMA: Final = "outcome string"
"""Of the rows that tasks give, for Spark."""

COLUMNS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
"""The others are the same for a whole range."""

BATCH_BYTES: Final = 16 << 20
"""Of keys and values. Nothing of these batches is passed to the JVM, which likes small ones."""

Batches = Iterator[pa.RecordBatch]


class RangeOutcome(NamedTuple):
    """What became of one range."""

    wanted: OffsetRange
    records: int
    """How many it had; the other offsets are missing, or there never was a record at them."""

    read_bytes: int
    """Of keys and values."""

    files: tuple[DataFile, ...] = ()
    missing: tuple[OffsetRange, ...] = ()
    """Offsets that the log had deleted before they were read, or had in damaged batches."""

    refusal: str | None = None
    """Why the load must not go on: something is missing, and nothing may be."""

    @property
    def without_record(self) -> int:
        """Offsets at which the log has no record: compacted away, or a transaction's own."""
        return self.wanted.size - self.records - sum(each.size for each in self.missing)


@dataclass(frozen=True)
class LoadTask:
    """All that tasks have to know. Goes to them with the function that they run."""

    properties: Mapping[str, str] = field(repr=False)
    """Of a Kafka client, its password among them."""

    table: str
    """Its URI."""

    folder: str
    """Of the run, relative to the table."""

    ranges: Sequence[OffsetRange]
    topic_ids: Mapping[str, UUID | None]
    """Of the topics that the ranges are of: one that was made anew since has other records."""

    codec: str
    may_lose: bool
    read_committed: bool


def runner(task: LoadTask) -> Callable[[Batches], Batches]:
    """The function for Spark: of rows with the indexes of ranges, rows with their outcomes."""

    def run(indexes: Batches) -> Batches:
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                outcome = load_range(task, task.ranges[index])
                yield pa.RecordBatch.from_pydict({"outcome": [write_outcome(outcome)]})

    return run


def load_range(task: LoadTask, wanted: OffsetRange) -> RangeOutcome:
    """Read a range and write it; the files are durable.

    A loss that may not be is an outcome: to try again would not bring anything back.

    Raises:
        SourceFailed: the log did not answer, or gave something that was not asked for.
        StorageFailed: a file could not be written.
    """
    losses = Losses(task.may_lose)
    store = open_store(task.table)
    topic, partition = wanted.topic, wanted.partition
    tally = _Tally(wanted)
    try:
        with HourFiles(store, task.folder, topic, partition, task.codec) as files:
            for batch in _records(task, wanted, losses):
                tally.add(batch)
                files.add(batch)
            written = files.close()
    except DataLost as refusal:
        return RangeOutcome(wanted, 0, 0, refusal=str(refusal))
    return RangeOutcome(
        wanted, tally.records, tally.read_bytes, tuple(written), tuple(losses.ranges)
    )


def _records(task: LoadTask, wanted: OffsetRange, losses: Losses) -> Batches:
    return read_range(
        task.properties,
        wanted,
        columns=COLUMNS,
        losses=losses,
        topic_id=task.topic_ids[wanted.topic],
        read_committed=task.read_committed,
        batch_bytes=BATCH_BYTES,
    )


class _Tally:
    """Counts what was read of a range, and holds that no offset comes twice or from elsewhere."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._next = wanted.start
        self.records = 0
        self.read_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        offsets = batch["offset"].to_numpy()
        if not len(offsets):
            return
        first, last = int(offsets[0]), int(offsets[-1])
        if first < self._next or last >= self._wanted.end or np.any(np.diff(offsets) <= 0):
            raise SourceFailed(
                f"{self._wanted}: the log gave offsets {first} to {last} where {self._next} and "
                "later ones, each once, were due"
            )
        self._next = last + 1
        self.records += len(offsets)
        for name in ("key", "value"):
            self.read_bytes += pc.sum(pc.binary_length(batch[name])).as_py() or 0


def write_outcome(outcome: RangeOutcome) -> str:
    """An outcome as the text of a row."""
    return json.dumps(
        {
            **outcome._asdict(),
            "wanted": _written(outcome.wanted),
            "missing": [_written(each) for each in outcome.missing],
        }
    )


def read_outcome(text: str) -> RangeOutcome:
    """The outcome that `write_outcome` wrote."""
    fields = json.loads(text)
    return RangeOutcome(
        **{
            **fields,
            "wanted": OffsetRange(*fields["wanted"]),
            "files": tuple(DataFile(*each) for each in fields["files"]),
            "missing": tuple(OffsetRange(*each) for each in fields["missing"]),
        }
    )


def _written(offsets: OffsetRange) -> list[str | int]:
    return [offsets.topic, offsets.partition, offsets.start, offsets.end]
