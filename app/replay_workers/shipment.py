"""The request that brings one or several events, the same at every attempt."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from app.log.event import LoggedEvent


class Shipment(NamedTuple):
    """Events with what a request needs to bring them; `message_id` is its `webhook-id`."""

    events: Sequence[LoggedEvent]
    message_id: str
    body: bytes
    headers: Mapping[str, str]


def single(event: LoggedEvent) -> Shipment:
    """The event by itself: its own id, its own body."""
    return Shipment((event,), event.event_id, event.value, {})


def batch(events: Sequence[LoggedEvent]) -> Shipment:
    """Events as a JSON array; a receiver tells copies of one by the ids of its members."""
    names = "".join(f"{event.offset}:{event.event_id}\n" for event in events)
    digest = sha256(names.encode("utf-8", "surrogatepass")).hexdigest()
    # A body that is empty would leave no JSON behind.
    body = b"[%b]" % b",".join([event.value or b"null" for event in events])
    return Shipment(events, f"batch_{digest[:32]}", body, {"webhook-batch-size": str(len(events))})
