"""Options of a replay besides its window."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

EVENTS_PER_SECOND: Final = 2_500
"""The default rate limit of a replay; that of Twitter's Replay API."""

EVENTS_PER_SECOND_MAX: Final = 1_000_000
BATCH_EVENTS_MAX: Final = 1_000
IN_FLIGHT_MAX: Final = 1_024
EVENT_TYPES_MAX: Final = 50


class Only(StrEnum):
    """Which events in its window a replay delivers."""

    ALL = "all"
    FAILED = "failed"
    """Those without a successful live delivery."""


class Source(StrEnum):
    """The topic that a replay reads."""

    LOG = "log"
    """`delivery_log`, within its retention."""

    ARCHIVE = "archive"
    """`delivery_archive`, to which a restore copies archived events."""


class ReplayReason(StrEnum):
    """Why a replay was created."""

    REQUEST = "request"
    """Somebody requested it."""

    RECOVERY = "recovery"
    """The receiver of its webhook accepts events again after an outage."""


class NoticeStyle(StrEnum):
    """The format of the notification that a webhook gets at the end of a replay."""

    REWIND = "rewind"
    TWITTER = "twitter"
    """`replay_job_status`, as Twitter's Account Activity Replay API sends it."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a replay delivers; stored with it and never changed.

    `event_types` are globs, one of which must match an event's type; an empty tuple selects all.
    `max_in_flight` is None for the worker's setting; with 1, events arrive in strict order.
    `batch_size` is the maximum of events per request; 1 sends each event by itself.
    `target_url` replaces the webhook's URL.
    """

    event_types: tuple[str, ...] = ()
    only: Only = Only.ALL
    max_events_per_second: int = EVENTS_PER_SECOND
    max_in_flight: int | None = None
    batch_size: int = 1
    target_url: str | None = None
