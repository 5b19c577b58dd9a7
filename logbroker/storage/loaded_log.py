"""What opening a log starts from."""

from typing import NamedTuple

from logbroker.storage.leader_epochs import LeaderEpochs
from logbroker.storage.producer_state import ProducerState
from logbroker.storage.segment import LogSegment


class LoadedLog(NamedTuple):
    """What lies on the disk, whole and in order: a log may be opened on it."""

    segments: tuple[LogSegment, ...]
    start_offset: int
    end_offset: int
    producers: ProducerState
    epochs: LeaderEpochs
    is_closed: bool
    """Whether all that a clean close writes is there, until a record is appended."""
