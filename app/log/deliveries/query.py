"""The query for a page of deliveries, and its cursor."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.model import Window
from app.domain.scheduled_retries import RetryProgress
from app.log.errors import BrowseRefused

LIMIT_MAX: Final = 100
"""Deliveries of a page."""

_CURSOR: Final = re.compile(r"(?:p([0-9]{1,19})\.)?s([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeliveryQuery:
    """A page of the deliveries of webhooks, whose event times are in `window`.

    All webhooks have their records in the same partition, both of events and of outcomes.
    `event_type` may have wildcards, as in rules. If `may_clip`, the window begins at the first
    record that the log still has; otherwise an older window is an error. `late_until_ms` is when
    the last late event of the window arrived, if any: its outcome was written after that. The
    deliveries `resent` have succeeded, whatever their outcomes. `retries` is the progress of those
    with scheduled retries.
    """

    webhook_ids: tuple[str, ...]
    window: Window
    status: DeliveryStatus | None = None
    event_type: str | None = None
    event_ids: frozenset[str] | None = None
    cursor: str | None = None
    limit: int = 50
    may_clip: bool = False
    late_until_ms: int | None = None
    resent: frozenset[DeliveryPlace] = frozenset()
    retries: Mapping[DeliveryPlace, RetryProgress] = field(default_factory=dict)

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys of its records."""
        return frozenset(each.encode() for each in self.webhook_ids)

    def is_waiting(self, place: DeliveryPlace) -> bool:
        """Whether a delivery waits for a scheduled retry."""
        progress = self.retries.get(place)
        return progress is not None and progress.is_pending


class DeliveryCursor(NamedTuple):
    """Where a page continues: first with pending deliveries, then with outcomes."""

    pending_end: int | None
    """The offset of `delivery_log` below which pending deliveries follow; None if none do."""

    outcomes_end: int
    """The offset of `delivery_outcomes` below which outcomes follow."""

    @property
    def text(self) -> str:
        """The cursor as text that needs no URL encoding."""
        pending = "" if self.pending_end is None else f"p{self.pending_end}."
        return f"{pending}s{self.outcomes_end}"


def parse_delivery_cursor(text: str) -> DeliveryCursor:
    """Parse a cursor.

    Raises:
        BrowseRefused: it is invalid.
    """
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise BrowseRefused("cursor", text, "the nextCursor of the previous page")
    return DeliveryCursor(None if match[1] is None else int(match[1]), int(match[2]))
