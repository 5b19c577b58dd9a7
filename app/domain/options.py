"""What a replay may be asked for beyond its window."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EVENTS_PER_SECOND: Final = 2_500
"""How fast a replay delivers when nobody says otherwise; Twitter's replays went as fast."""

EVENTS_PER_SECOND_MAX: Final = 1_000_000
BATCH_EVENTS_MAX: Final = 1_000
IN_FLIGHT_MAX: Final = 1_024
EVENT_TYPES_MAX: Final = 50


class Only(StrEnum):
    """Which of the events in its window a replay brings."""

    ALL = "all"
    FAILED = "failed"
    """Those that no live delivery has brought."""


class Source(StrEnum):
    """Where a replay reads its events."""

    LOG = "log"
    """In `delivery_log`, as long as it keeps them."""

    ARCHIVE = "archive"
    """In `delivery_archive`, where they are once they were read back from what was loaded."""


class NoticeStyle(StrEnum):
    """The form in which the end of a replay is told to its webhook."""

    REWIND = "rewind"
    TWITTER = "twitter"
    """`replay_job_status`, as Twitter's Account Activity Replay API sends it."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a replay is to be done; stored with it and never changed.

    `event_types` are globs, of which one must match an event's type; none lets all through.
    `max_in_flight` is None for the worker's own setting; with 1, events arrive in strict order.
    `batch_size` is how many events a POST may bring: 1 sends each one by itself.
    `target_url` is where they go instead of the webhook's URL.
    """

    event_types: tuple[str, ...] = ()
    only: Only = Only.ALL
    max_events_per_second: int = EVENTS_PER_SECOND
    max_in_flight: int | None = None
    batch_size: int = 1
    target_url: str | None = None
