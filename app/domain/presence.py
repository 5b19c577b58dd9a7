"""Which processes of the service are at work, as they tell of themselves."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BEAT_S: Final = 5.0
"""How often a process says that it lives."""

SILENT_AFTER_MS: Final = 20_000
"""Three beats that did not come are no accident any more."""

FORGOTTEN_AFTER_MS: Final = 86_400_000
"""For so long one may see of a process that it has ended without a word."""

Details = Mapping[str, int]
"""What a process has to tell of its kind, such as {"jobs": 3}."""


class ProcessKind(StrEnum):
    """What a process does."""

    API = "api"
    LIVE = "live"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has said it lives, and not yet that it ends.

    `name` is HOST:PID, a worker's is the one that its replays bear; `origin` is its data centre.
    `started_ms` is by the clock of its machine, `heartbeat_ms` by the database's; `silent_ms` is
    how long ago that was.
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
        """Whether it has died, hangs, or does not reach the database."""
        return self.silent_ms >= SILENT_AFTER_MS
