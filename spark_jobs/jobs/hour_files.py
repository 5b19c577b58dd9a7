"""Writes the records of one partition to files by hour, within a task of the load.

Memory and files are bounded, whatever timestamps the records have: there are limits on waiting
bytes, open files and hours with files of their own. Any publisher can choose timestamps.
"""

import uuid
from collections.abc import Iterator
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.jobs.record_files import (
    FILE_BYTES_MAX,
    ROW_GROUP_BYTES,
    SCHEMA,
    FileScope,
    RecordFile,
)
from spark_jobs.storage import TableStore
from spark_jobs.tables.manifest import DataFile

WAITING_BYTES_MAX: Final = 2 * ROW_GROUP_BYTES
"""For all hours together: one full row group, and what the other hours gathered meanwhile."""

OPEN_FILES_MAX: Final = 64
HOURS_MAX: Final = 1_000
"""A topic with a month of retention has 744 hours."""

ANY_HOUR: Final = -1
"""The hour of the file for all hours beyond the limit; its rows have their own hours."""

_FRAME_BYTES: Final = 5
_ID_BYTES: Final = np.arange(1, _FRAME_BYTES)
_HOUR_US: Final = 3_600_000_000
_HOURS_OF_A_DAY: Final = 24
_HOURS_END: Final = 70_389_528
"""The first hour of the year 10000, which does not fit a four-digit date."""

Hours = npt.NDArray[np.int64]
"""Hours since 1970."""


class HourFiles:
    """Writes records of a partition in their order to one file per hour.

    An hour may have several files: a file is closed when it reaches `FILE_BYTES_MAX`, or when too
    many are open. A context manager: an error deletes the open files.
    """

    def __init__(
        self, store: TableStore, folder: str, topic: str, partition: int, codec: str
    ) -> None:
        self._store = store
        self._topic = topic
        self._partition = partition
        self._codec = codec
        # Two attempts of a task may run at once; each writes files of its own.
        self._prefix = f"{folder}/{topic}/{partition:05}-{uuid.uuid4().hex[:16]}"
        self._files: dict[int, RecordFile] = {}
        self._started = 0
        self._hours: set[int] = set()
        self._done: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            for file in self._files.values():
                file.discard(error)

    def add(self, records: pa.RecordBatch) -> None:
        """Add records of this partition, in the columns of Spark's Kafka connector."""
        if len(records) == 0:
            return
        for hour, rows in self._split_by_hour(self._raw_rows(records)):
            file = self._file(hour)
            file.add(rows)
            if file.waiting_bytes >= ROW_GROUP_BYTES:
                self._flush(hour)
        while self._waiting_bytes() > WAITING_BYTES_MAX:
            self._flush(max(self._files, key=lambda hour: self._files[hour].waiting_bytes))

    def close(self) -> list[DataFile]:
        """Write all waiting rows; the files, durable, in the order in which they were closed."""
        for hour in list(self._files):
            self._close(hour)
        return self._done

    def _split_by_hour(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each hour, in their order."""
        hours = _hours(rows)
        first = int(hours[0])
        if np.all(hours == first):
            yield self._file_hour(first), rows
            return
        present, inverse = np.unique(hours, return_inverse=True)
        file_hours = np.array([self._file_hour(int(hour)) for hour in present])[inverse]
        for file_hour in np.unique(file_hours):
            # `take`, not a slice, which would keep the whole batch in memory.
            yield int(file_hour), rows.take(pa.array(np.flatnonzero(file_hours == file_hour)))

    def _file_hour(self, hour: int) -> int:
        """The hour of the file for records of this hour."""
        if hour in self._hours:
            return hour
        if len(self._hours) >= HOURS_MAX or not 0 <= hour < _HOURS_END:
            return ANY_HOUR
        self._hours.add(hour)
        return hour

    def _file(self, hour: int) -> RecordFile:
        """The open file of an hour."""
        file = self._files.get(hour)
        if file is None:
            date, hour_of_day = _date_and_hour(hour)
            name = f"{date or 'any'}T{'' if hour_of_day is None else f'{hour_of_day:02}'}"
            path = f"{self._prefix}-{name}-{self._started}.parquet"
            scope = FileScope(self._topic, self._partition, date, hour_of_day)
            file = self._files[hour] = RecordFile(self._store, path, scope, self._codec)
            self._started += 1
        return file

    def _flush(self, hour: int) -> None:
        # `_files` is ordered by the last flush.
        file = self._files[hour] = self._files.pop(hour)
        file.flush()
        if file.written_bytes >= FILE_BYTES_MAX:
            self._close(hour)
        opened = [hour for hour, file in self._files.items() if file.is_open]
        if len(opened) > OPEN_FILES_MAX:
            self._close(opened[0])

    def _close(self, hour: int) -> None:
        self._done.append(self._files[hour].close())
        del self._files[hour]

    def _waiting_bytes(self) -> int:
        return sum(file.waiting_bytes for file in self._files.values())

    def _raw_rows(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records in the columns of the raw table."""
        hours = _hours(records)
        count = len(records)
        columns = {
            "topic": pa.repeat(self._topic, count),
            "partition": pa.repeat(pa.scalar(self._partition, pa.int32()), count),
            "schemaId": schema_ids(records["value"]),
            "date": pa.array((hours // _HOURS_OF_A_DAY).astype(np.int32)).view(pa.date32()),
            "hour": pa.array((hours % _HOURS_OF_A_DAY).astype(np.int32)),
        }
        return pa.RecordBatch.from_arrays(
            [columns[name] if name in columns else records[name] for name in SCHEMA.names],
            schema=SCHEMA,
        )


def schema_ids(values: pa.BinaryArray) -> pa.Int32Array:
    """The schema id of each value in Avro's wire format; null for other values.

    Source: Confluent Schema Registry documentation, "Wire format": a zero byte, the id in four
    bytes, high byte first, and the datum.
    """
    count = len(values)
    _, offsets_buffer, data_buffer = values.buffers()
    if data_buffer is None:
        return pa.nulls(count, pa.int32())
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    starts = offsets[:-1]
    framed = np.flatnonzero(np.diff(offsets) >= _FRAME_BYTES)
    framed = framed[data[starts[framed]] == 0]
    ids = np.zeros(count, np.int32)
    ids[framed] = data[starts[framed, None] + _ID_BYTES].view(">i4")[:, 0]
    is_absent = np.ones(count, np.bool_)
    is_absent[framed] = ids[framed] < 0
    if values.null_count:
        is_absent |= values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(ids, mask=is_absent)


def _hours(rows: pa.RecordBatch) -> Hours:
    times_us = rows["timestamp"].view(pa.int64()).to_numpy()
    hours: Hours = times_us // _HOUR_US
    return hours


def _date_and_hour(hour: int) -> tuple[str | None, int | None]:
    if hour == ANY_HOUR:
        return None, None
    day, hour_of_day = divmod(hour, _HOURS_OF_A_DAY)
    return str(np.datetime64(day, "D")), hour_of_day
