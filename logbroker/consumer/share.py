"""What one stream owns from one claim to the next release."""

from collections.abc import Mapping

from logbroker.registry.zookeeper.lease import SessionLease


class Share:
    """Partitions of one topic, where each is read from, and how far its user is.

    A new claim makes a new share, be it of the same partitions: whatever was fetched for another
    share is never handed out for this one. Not safe on several threads: its stream's lock is.
    """

    def __init__(self, topic: str, starts: Mapping[int, int], lease: SessionLease) -> None:
        """`starts` has the first offset of each partition, or one of librdkafka's logical ones."""
        self.topic = topic
        self.starts = starts
        self.lease = lease
        self._processed: dict[int, int] = {}

    def processed(self, partition: int, next_offset: int) -> None:
        """Everything below `next_offset` was processed, or is no message."""
        self._processed[partition] = next_offset

    @property
    def positions(self) -> dict[int, int]:
        """For each partition of which something was processed, the offset to go on from."""
        return dict(self._processed)
