"""Fetches that wait for records: each in the purgatory of its partitions."""

from dataclasses import dataclass

from logbroker.server.connection import Connection
from logbroker.server.loop import Timer
from logbroker.server.partition import Partition
from logbroker.wire.fetch import FetchRequest
from logbroker.wire.response_queue import PendingResponse


@dataclass(eq=False, slots=True)
class DelayedFetch:
    """A fetch in the purgatory; `purgatory` is that of the handler."""

    connection: Connection
    response: PendingResponse
    request: FetchRequest
    partitions: list[Partition]
    timer: Timer
    began_s: float
    purgatory: "FetchPurgatory"
    next_read_s: float = 0.0
    next_read: Timer | None = None
    is_being_read: bool = False
    """Whether some of its many partitions have been read again, and others not yet."""
    completes_when_read: bool = False
    """Whether it is completed then, with whatever there is."""
    is_over: bool = False

    def abandon(self) -> None:
        """Leave the purgatory, answered or disconnected."""
        self.is_over = True
        self.timer.cancel()
        if self.next_read is not None:
            self.next_read.cancel()
        self.connection.delayed.discard(self)
        self.purgatory.remove(self)


class FetchPurgatory:
    """The delayed fetches of each partition."""

    def __init__(self) -> None:
        self._by_partition: dict[Partition, set[DelayedFetch]] = {}

    def add(self, fetch: DelayedFetch) -> None:
        """Let `fetch` wait for each of its partitions."""
        for partition in fetch.partitions:
            self._by_partition.setdefault(partition, set()).add(fetch)

    def remove(self, fetch: DelayedFetch) -> None:
        """Remove `fetch`; removing it twice does nothing."""
        for partition in fetch.partitions:
            if fetches := self._by_partition.get(partition):
                fetches.discard(fetch)
                if not fetches:
                    del self._by_partition[partition]

    def find(self, partition: Partition) -> list[DelayedFetch]:
        """Return the fetches that wait for `partition`."""
        return list(self._by_partition.get(partition, ()))
