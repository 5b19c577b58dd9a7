"""The process registry: the running processes of the service and their heartbeats."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HEARTBEAT_S: Final = 5.0
"""The interval of heartbeats."""

SILENT_AFTER_MS: Final = 20_000
"""A process is silent after more than three missed heartbeats."""

DELETED_AFTER_MS: Final = 86_400_000
"""How long a process that ended without notice is shown."""

Details = Mapping[str, int]
"""What a process reports about its work, such as {"jobs": 3}."""


STALLED_PARTITIONS: Final = "stalledPartitions"
"""The detail of a live process that counts partitions without progress; absent without any."""


class ProcessKind(StrEnum):
    """What a process does."""

    API = "api"
    LIVE = "live"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has sent heartbeats and has not ended normally.

    `name` is HOST:PID; a worker's is HOST:PID:ID, and `worker-ID` in its replays. `origin` is its
    data centre. `started_ms` is by the clock of its machine, `heartbeat_ms` by the database's.
    `silent_ms` is the time since the last heartbeat.
    """

    kind: ProcessKind
    name: str
    origin: str
    details: Details
    started_ms: int
    heartbeat_ms: int
    silent_ms: int

    @property
    def is_silent(self) -> bool:
        """Whether it has crashed, hangs, or does not reach the database."""
        return self.silent_ms >= SILENT_AFTER_MS
