"""Kafka's checkpoint files: offsets of partitions, and leader epochs of a partition."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from logbroker.errors import ConfigurationError
from logbroker.records.batch import BatchHeader
from logbroker.storage.file_writes import replace_file

CHECKPOINT_VERSION: Final = "0"

NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = 2**31 - 1

TopicPartition = tuple[str, int]


class OffsetCheckpoint:
    """A file of offsets: lines `0` (the version), the count, then `topic partition offset`.

    The data directory has four: `recovery-point-offset-checkpoint` (records below are
    flushed), `log-start-offset-checkpoint` (only if records were deleted inside a segment),
    `replication-offset-checkpoint` (the high watermark) and `cleaner-offset-checkpoint` (records
    below are compacted). Each is replaced atomically, if offsets have changed; a crash leaves the
    old file, and possibly `<name>.tmp`.

    Source: Kafka, `OffsetCheckpointFile.java`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: dict[TopicPartition, int] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; empty if the file is missing.

        Raises:
            ConfigurationError: the file has another version or is not a checkpoint.
        """
        try:
            offsets = {
                (topic, int(partition)): int(offset)
                for topic, partition, offset in _read_rows(self.path)
            }
        except ValueError as error:
            raise ConfigurationError(f"{self.path} is not an offset checkpoint: {error}") from None
        # A missing file is not as good as an empty one: recovery then trusts any gap.
        self._written = offsets.copy() or None
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the offsets durably, unless the file has the same.

        Raises:
            OSError: the write failed; the next call repeats it.
        """
        if offsets == self._written:
            return
        rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        self._written = None
        _write_rows(self.path, rows)
        self._written = dict(offsets)


class LeaderEpochCheckpoint:
    """`leader-epoch-checkpoint` of a partition: lines `0`, the count, then `epoch startOffset`.

    Written when the log is created, and by recovery if it is missing or names epochs behind the
    log's end.

    Source: Kafka, `LeaderEpochCheckpointFile.java` (KIP-101).
    """

    NAME: Final = "leader-epoch-checkpoint"

    def __init__(self, folder: Path) -> None:
        self.path = folder / self.NAME

    def read(self) -> list[tuple[int, int]]:
        """Return epochs and start offsets, both ascending; empty if the file is missing.

        Raises:
            ConfigurationError: the file has another version or is not a checkpoint.
        """
        try:
            return sorted((int(epoch), int(start)) for epoch, start in _read_rows(self.path))
        except ValueError as error:
            raise ConfigurationError(f"{self.path} is not an epoch checkpoint: {error}") from None

    def write(self, epochs: list[tuple[int, int]]) -> None:
        """Replace the epochs durably."""
        _write_rows(self.path, [f"{epoch} {start}" for epoch, start in epochs])


class LeaderEpochs:
    """The leader epochs of a log with their start offsets, both ascending; at least one.

    Source: KIP-101; Kafka, `LeaderEpochFileCache.java`.
    """

    __slots__ = ("starts",)

    def __init__(self, starts: Iterable[tuple[int, int]]) -> None:
        self.starts = sorted(starts)

    @property
    def latest(self) -> int:
        """The epoch of appended batches."""
        return self.starts[-1][0] if self.starts else FIRST_EPOCH

    def add_batch(self, header: BatchHeader) -> None:
        """Add the epoch of a batch; batches are passed in log order."""
        if not self.starts or header.leader_epoch > self.latest:
            self.starts.append((header.leader_epoch, header.base_offset))

    def truncate(self, start: int, end: int) -> None:
        """Remove the epochs that start at `end` or later; keeps one, at least at `start`."""
        below = [(epoch, offset) for epoch, offset in self.starts if offset < end]
        self.starts = below or self.starts[:1] or [(FIRST_EPOCH, start)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the last epoch up to `epoch` and its end offset; (-1, -1) if there is none."""
        if not 0 <= epoch <= self.latest:
            return NO_EPOCH, NO_EPOCH
        later = bisect_right(self.starts, epoch, key=lambda entry: entry[0])
        end = self.starts[later][1] if later < len(self.starts) else log_end_offset
        return self.starts[later - 1][0] if later else epoch, end


def _read_rows(path: Path) -> list[list[str]]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    if len(lines) < 2 or lines[0] != CHECKPOINT_VERSION:
        raise ValueError(f"version {lines[:1]}; supported: {CHECKPOINT_VERSION}")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != int(lines[1]):
        raise ValueError(f"expected {lines[1]} rows, found {len(rows)}")
    return rows


def _write_rows(path: Path, rows: list[str]) -> None:
    text = "\n".join([CHECKPOINT_VERSION, str(len(rows)), *rows]) + "\n"
    replace_file(path, text.encode())
