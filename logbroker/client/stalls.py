"""How long partitions have made no progress although there is something to read."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

INSPECT_AFTER_S: Final = 5.0
"""After how long a partition without progress is inspected: librdkafka reports nothing for records
that do not parse."""

STALLED_AFTER_S: Final = 60.0
"""After how long a process is not ready, and an alert fires."""

P = TypeVar("P", bound=Hashable)


class StallDetector(Generic[P]):
    """The time that partitions wait at one position; by any clock."""

    def __init__(self) -> None:
        self._since: dict[P, tuple[int, float]] = {}

    def update(self, partition: P, position: int, *, is_waiting: bool, now_s: float) -> float:
        """Return how long a partition waits at `position`; 0 if it does not wait for the log."""
        if not is_waiting:
            self._since.pop(partition, None)
            return 0.0
        at, since_s = self._since.get(partition, (position, now_s))
        if at != position:
            since_s = now_s
        self._since[partition] = position, since_s
        return now_s - since_s

    def forget(self, partition: P) -> None:
        """Forget a partition, or that it waits."""
        self._since.pop(partition, None)
