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
    origin: str = ""
    """The data centre where it was published; empty where its producer did not say."""

    audit: bytes | None = None
    """The mark of an audited producer: see `logbroker.client.audit_format.mark`."""


def header_text(value: bytes | str | None) -> str:
    """The text of a record's header; empty when there is none."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def is_presentable(event_id: str) -> bool:
    """Whether an event id can be sent in an HTTP header as it is."""
    printable = event_id.isascii() and event_id.isprintable()
    return bool(event_id) and printable and event_id == event_id.strip()


def place_name(topic: str, partition: int, offset: int) -> str:
    """An id for an event that brings none: its place in the log, which lasts as well."""
    return f"{topic}-{partition}-{offset}"
