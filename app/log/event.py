"""An event on its way into the log, and as it is read back."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class OwedEvent:
    """An event to publish.

    `webhook_id` becomes the record's key; None leaves the partition to chance, as for events
    that are owed to nobody yet. `time_ms` is the event's own time and becomes the record's
    timestamp; `body` is what a receiver gets, byte for byte.
    """

    webhook_id: str | None
    event_id: str
    event_type: str
    time_ms: int
    body: bytes


class LoggedEvent(NamedTuple):
    """An event as the log holds it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    event_id: str
    event_type: str
    value: bytes
