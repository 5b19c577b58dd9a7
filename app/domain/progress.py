"""Progress of a replay: share, rate and estimated time to completion."""

from dataclasses import dataclass

from app.domain.model import OffsetRange, Replay
from app.domain.states import TERMINAL, ReplayState


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress as of the last checkpoint.

    `share` lies in [0, 1] and counts offsets: the number of events is not known beforehand, because
    a partition holds those of other webhooks too. `rate_events_s` is the mean over the time in
    which a worker ran the replay, without pauses; None before the first event. `eta_s` extrapolates
    the offsets so far, and is None unless the replay is ONGOING and beyond its first offset.
    """

    share: float
    rate_events_s: float | None
    eta_s: float | None


def progress(replay: Replay, now_ms: int) -> Progress:
    """The progress of a replay at `now_ms`."""
    worked_s = _worked_s(replay, now_ms)
    counts = replay.counts
    events = counts.delivered + counts.duplicates + counts.failed
    rate_events_s = events / worked_s if events and worked_s > 0 else None
    return Progress(_share(replay), rate_events_s, _eta_s(replay, worked_s))


def _worked_s(replay: Replay, now_ms: int) -> float:
    if replay.started_ms is None:
        return 0.0
    # The start is by the database's clock, which may be slightly ahead.
    return max(0, _until_ms(replay, now_ms) - replay.started_ms - replay.idle_ms) / 1000


def _until_ms(replay: Replay, now_ms: int) -> int:
    """When a worker last ran it."""
    if replay.state in TERMINAL:
        return replay.finished_ms or now_ms
    is_idle = replay.state in (ReplayState.OPEN, ReplayState.PAUSED)
    return replay.heartbeat_ms or now_ms if is_idle else now_ms


def _share(replay: Replay) -> float:
    if replay.state is ReplayState.COMPLETED:
        return 1.0
    if replay.offsets is None:
        return 0.0
    length = replay.offsets.end - replay.offsets.start
    return _passed(replay, replay.offsets) / length if length else 1.0


def _eta_s(replay: Replay, worked_s: float) -> float | None:
    if replay.state is not ReplayState.ONGOING or replay.offsets is None:
        return None
    passed = _passed(replay, replay.offsets)
    remaining = replay.offsets.end - replay.offsets.start - passed
    if not remaining:
        return 0.0
    return remaining * worked_s / passed if passed else None


def _passed(replay: Replay, offsets: OffsetRange) -> int:
    return 0 if replay.checkpoint is None else replay.checkpoint - offsets.start
