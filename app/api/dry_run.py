"""What a replay would bring, told instead of queued."""

from typing import Final

from app.api.doors import Doors
from app.api.models.replays import EstimateDocument
from app.api.replay_requests import check, look_up
from app.domain.accounts import ApiKey
from app.domain.forecast import duration_s
from app.domain.globs import glob_matches
from app.domain.model import NewReplay
from app.domain.options import Only
from app.log.delivered import LiveDeliveries
from app.log.estimate import Question

ESTIMATES_PER_ACCOUNT_MAX: Final = 2
"""Of those that are made at a time, one developer's: half are left to the others."""


def estimate_replay(doors: Doors, caller: ApiKey, new: NewReplay) -> EstimateDocument:
    """The records that would be read, and how many of them would be sent, for how long.

    The webhook need not be ENABLED, and nothing is sent to it or to the target URL. With
    `only: failed`, those that were delivered live are not counted, as far as their outcomes
    could be read.

    Raises:
        EstimatesBusy, HistoryLost, and those of `check` and `look_up`.
    """
    check(doors, caller, new)
    offsets = look_up(doors, new)
    globs = new.options.event_types
    found = doors.estimator.estimate(
        Question(
            offsets,
            new.webhook_id.encode(),
            new.window,
            lambda event_type: not globs or any(glob_matches(glob, event_type) for glob in globs),
            _deliveries(doors, new, offsets.partition) if new.options.only is Only.FAILED else None,
        )
    )
    seconds = duration_s(found.events, found.reading_s, new.options, doors.settings.max_in_flight)
    return EstimateDocument(
        partition=offsets.partition,
        start_offset=offsets.start,
        end_offset=offsets.end,
        events=found.events,
        bytes=found.bytes,
        is_exact=found.is_exact,
        is_upper_bound=found.is_upper_bound,
        estimated_seconds=round(seconds, 3),
    )


def _deliveries(doors: Doors, new: NewReplay, partition: int) -> LiveDeliveries:
    settings = doors.settings
    late_until_ms = doors.store.late_recorded_ms(partition, new.window, origin=settings.origin)
    return LiveDeliveries(settings, doors.outcomes, new.webhook_id, new.window, late_until_ms)
