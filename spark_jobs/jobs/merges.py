"""Selects the small files of a table to merge. Pure."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from spark_jobs.tables.manifest import DataFile

MERGED_BYTES_MAX: Final = 256 << 20
"""Total size of the files of a merge: a little more than a Spark task reads at once."""


class Merge(NamedTuple):
    """At least two files of one topic, date and hour, in the order of their rows."""

    files: tuple[DataFile, ...]

    @property
    def merged(self) -> DataFile:
        """The entry of the merged file, still with the path and bytes of the first one."""
        first = self.files[0]
        partitions = {file.partition for file in self.files}
        return first._replace(
            records=sum(file.records for file in self.files),
            partition=first.partition if len(partitions) == 1 else None,
            offset_min=_least(file.offset_min for file in self.files),
            offset_max=_most(file.offset_max for file in self.files),
            time_min_ms=_least(file.time_min_ms for file in self.files),
            time_max_ms=_most(file.time_max_ms for file in self.files),
        )


def plan_merges(
    files: Iterable[DataFile], *, small_bytes: int, merged_bytes_max: int = MERGED_BYTES_MAX
) -> list[Merge]:
    """The merges of all files below `small_bytes`, largest first.

    A merge has files of one topic, date and hour. They are sorted, so the offsets of two files of a
    partition do not interleave.
    """
    small = sorted((file for file in files if file.bytes < small_bytes), key=_order)
    merges = [
        Merge(part)
        for _, group in groupby(small, key=_place)
        for part in _parts(group, merged_bytes_max)
        if len(part) > 1
    ]
    return sorted(merges, key=lambda merge: -sum(file.bytes for file in merge.files))


def _place(file: DataFile) -> tuple[str, str, int]:
    """The key that merged files have in common."""
    return file.topic or "", file.date or "", -1 if file.hour is None else file.hour


def _order(file: DataFile) -> tuple[object, ...]:
    partition = -1 if file.partition is None else file.partition
    first = file.time_min_ms if file.offset_min is None else file.offset_min
    return *_place(file), partition, first or 0, file.path


def _parts(group: Iterable[DataFile], bytes_max: int) -> Iterator[tuple[DataFile, ...]]:
    part: list[DataFile] = []
    taken = 0
    for file in group:
        if part and taken + file.bytes > bytes_max:
            yield tuple(part)
            part, taken = [], 0
        part.append(file)
        taken += file.bytes
    yield tuple(part)


def _least(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else min(value for value in known if value is not None)


def _most(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max(value for value in known if value is not None)
