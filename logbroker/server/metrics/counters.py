"""The counters of a broker, which only the loop's thread changes.

A scrape reads them on another thread without a lock. Each number is consistent; related numbers
may differ by one event.
"""

from dataclasses import dataclass, field
from typing import Final

from logbroker.histogram import Histogram
from logbroker.wire.apis import SERVED

SECONDS_BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""From a response out of memory to one after the client's timeout."""


class TopicTraffic:
    """Bytes and records that this broker received and sent for one topic."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out", "topic")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.messages_out = 0


def _per_api_count() -> dict[int, int]:
    return dict.fromkeys(map(int, SERVED), 0)


def _per_api_histogram() -> dict[int, Histogram]:
    return {int(api_key): _durations() for api_key in SERVED}


def _durations() -> Histogram:
    return Histogram(SECONDS_BOUNDS)


@dataclass(slots=True)
class Counters:
    """Counts since the process started; those of topics are in `TopicTraffic`."""

    requests: dict[int, int] = field(default_factory=_per_api_count)
    """By API key."""
    request_seconds: dict[int, Histogram] = field(default_factory=_per_api_histogram)
    """By API key, from the turn that read a request to its response; not of acks=0."""
    errors: dict[tuple[int, int], int] = field(default_factory=dict)
    """By API key and error code; a response counts once per error code in it."""
    flush_seconds: Histogram = field(default_factory=_durations)
    flush_failures: int = 0
    write_failures: int = 0
    checkpoint_failures: int = 0
    retention_failures: int = 0
    segments_deleted: int = 0
    segments_deleted_bytes: int = 0
    compactions: int = 0
    compaction_failures: int = 0
    compacted_bytes: int = 0
    compaction_removed_bytes: int = 0
    connections_opened: int = 0
    connections_rejected: int = 0
    connections_protocol_errors: int = 0
    authentication_failures: int = 0
    connections_muted: int = 0
    """Connections whose requests wait now because of a quota."""
    group_rebalances: int = 0

    def count_error(self, api_key: int, code: int, times: int = 1) -> None:
        """Count an error code of a response."""
        key = api_key, code
        self.errors[key] = self.errors.get(key, 0) + times
