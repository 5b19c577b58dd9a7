"""A task of the load: reads a range of the log and writes its files, without the JVM.

A task returns one row per range, with the names of its files, to the driver; never records.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
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

COLUMNS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
"""Columns that are read; the others are constant within a range."""

BATCH_BYTES: Final = 16 << 20
"""Bytes of keys and values per batch; large, because these batches do not go to the JVM."""

Batches = Iterator[pa.RecordBatch]


class RangeOutcome(NamedTuple):
    """The result of one range."""

    wanted: OffsetRange
    records: int
    """The number of records; other offsets are missing, or never had a record."""

    read_bytes: int
    """Of keys and values."""

    files: tuple[DataFile, ...] = ()
    missing: tuple[OffsetRange, ...] = ()
    """Offsets that the log had deleted before they were read, or that are in damaged batches."""

    error: str | None = None
    """Why the load must stop: records are missing, and the request does not allow it."""

    @property
    def without_record(self) -> int:
        """The number of offsets without a record: compacted, or markers of transactions."""
        return self.wanted.size - self.records - sum(each.size for each in self.missing)


@dataclass(frozen=True)
class LoadTask:
    """The input of all tasks of a run, serialized with their function."""

    properties: Mapping[str, str] = field(repr=False)
    """Properties of a Kafka client, including its password."""

    table: str
    """URI of the table."""

    folder: str
    """Folder of the run, relative to the table."""

    ranges: Sequence[OffsetRange]
    topic_ids: Mapping[str, UUID | None]
    """The ids of the topics when the ranges were planned; a recreated topic has another one."""

    codec: str
    may_lose: bool
    read_committed: bool


def load_range(task: LoadTask, wanted: OffsetRange) -> RangeOutcome:
    """Read a range and write it; the files are durable on return.

    A loss that is not allowed is an outcome and not an error, since a retry cannot help.

    Raises:
        SourceFailed: the log did not answer, or returned offsets that were not requested.
        StorageFailed: a file could not be written.
    """
    losses = Losses(task.may_lose)
    store = open_store(task.table)
    topic, partition = wanted.topic, wanted.partition
    tally = _RangeCounter(wanted)
    try:
        with HourFiles(store, task.folder, topic, partition, task.codec) as files:
            for batch in _records(task, wanted, losses):
                tally.add(batch)
                files.add(batch)
            written = files.close()
    except DataLost as error:
        return RangeOutcome(wanted, 0, 0, error=str(error))
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


class _RangeCounter:
    """Counts the records of a range, and checks that offsets increase and lie in the range."""

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
                f"{self._wanted}: the log returned offsets {first} to {last}; expected ascending "
                f"offsets from {self._next}"
            )
        self._next = last + 1
        self.records += len(offsets)
        for name in ("key", "value"):
            self.read_bytes += pc.sum(pc.binary_length(batch[name])).as_py() or 0


def write_outcome(outcome: RangeOutcome) -> str:
    """An outcome as text."""
    return json.dumps(
        {
            **outcome._asdict(),
            "wanted": _range_json(outcome.wanted),
            "missing": [_range_json(each) for each in outcome.missing],
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


def _range_json(offsets: OffsetRange) -> list[str | int]:
    return [offsets.topic, offsets.partition, offsets.start, offsets.end]
