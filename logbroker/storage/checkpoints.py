"""Kafka's text checkpoints: an offset for each partition of a data directory."""

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

TopicPartition = tuple[str, int]


class OffsetCheckpoint:
    """A file of offsets: lines `0` (the version), the count, then `topic partition offset`.

    The data directory has three: `recovery-point-offset-checkpoint` (below it all is
    flushed), `log-start-offset-checkpoint` (only where records were deleted inside a
    segment) and `replication-offset-checkpoint` (the high watermark). Each is replaced as
    a whole; a crash leaves the old one, and at worst `<name>.tmp` beside it.

    Source: Kafka, `OffsetCheckpointFile.java`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[TopicPartition, int]:
        """The offsets; none when the file is missing.

        Raises:
            ConfigurationError: the file is of another version, or no checkpoint.
        """
        try:
            return {
                (topic, int(partition)): int(offset)
                for topic, partition, offset in _read_rows(self.path)
            }
        except ValueError as error:
            raise ConfigurationError(f"{self.path} is no offset checkpoint: {error}") from None

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the offsets, durably."""
        rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        _write_rows(self.path, rows)


class LeaderEpochCheckpoint:
    """`leader-epoch-checkpoint` of a partition: lines `0`, the count, then `epoch startOffset`.

    Written when the log is created and when recovery finds another state in the log.

    Source: Kafka, `LeaderEpochCheckpointFile.java` (KIP-101).
    """

    NAME: Final = "leader-epoch-checkpoint"

    def __init__(self, folder: Path) -> None:
        self.path = folder / self.NAME

    def read(self) -> list[tuple[int, int]]:
        """The epochs with the offsets they began at, both rising; none without the file.

        Raises:
            ConfigurationError: the file is of another version, or no checkpoint.
        """
        try:
            return sorted((int(epoch), int(start)) for epoch, start in _read_rows(self.path))
        except ValueError as error:
            raise ConfigurationError(f"{self.path} is no epoch checkpoint: {error}") from None

    def write(self, epochs: list[tuple[int, int]]) -> None:
        """Replace the epochs, durably."""
        _write_rows(self.path, [f"{epoch} {start}" for epoch, start in epochs])


class LeaderEpochs:
    """Leader epochs with the offsets they began at, both rising; there is at least one.

    Source: KIP-101; Kafka, `LeaderEpochFileCache.java`.
    """

    __slots__ = ("starts",)

    def __init__(self, starts: Iterable[tuple[int, int]]) -> None:
        self.starts = sorted(starts)

    @property
    def latest(self) -> int:
        """The epoch that batches are appended under."""
        return self.starts[-1][0] if self.starts else FIRST_EPOCH

    def note(self, header: BatchHeader) -> None:
        """Take in a batch of the log, in the log's order."""
        if not self.starts or header.leader_epoch > self.latest:
            self.starts.append((header.leader_epoch, header.base_offset))

    def cut(self, start: int, end: int) -> None:
        """Forget the epochs that began at `end` or behind it; one is left, if only at `start`."""
        below = [(epoch, begun) for epoch, begun in self.starts if begun < end]
        self.starts = below or self.starts[:1] or [(FIRST_EPOCH, start)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The last epoch up to this one, and the offset it ended at; (-1, -1) if none."""
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
        raise ValueError(f"version {lines[:1]}, known is {CHECKPOINT_VERSION}")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != int(lines[1]):
        raise ValueError(f"{lines[1]} rows announced, {len(rows)} found")
    return rows


def _write_rows(path: Path, rows: list[str]) -> None:
    text = "\n".join([CHECKPOINT_VERSION, str(len(rows)), *rows]) + "\n"
    replace_file(path, text.encode())
