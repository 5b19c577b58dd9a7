"""How far a replay is, how fast it goes, and when it will be done."""

from dataclasses import dataclass

from app.domain.model import OffsetRange, Replay
from app.domain.states import TERMINAL, ReplayState


@dataclass(frozen=True, slots=True)
class Progress:
    """What the checkpoints of a replay tell.

    `share` lies in [0, 1] and counts offsets, because only the length of the range is known
    beforehand: a partition holds the events of other webhooks too. `rate_events_s` is the mean
    over the time in which a worker had it, so that a pause does not make it look slow; None
    before the first event. `eta_s` is None unless the replay is being delivered and has come past
    its first offset. It supposes that the rest is like what was done: the pace asked for held for
    that as well.
    """

    share: float
    rate_events_s: float | None
    eta_s: float | None


def progress(replay: Replay, now_ms: int) -> Progress:
    """The progress of a replay as of `now_ms`, from its last checkpoint."""
    worked_s = _worked_s(replay, now_ms)
    counts = replay.counts
    events = counts.delivered + counts.duplicates + counts.failed
    rate_events_s = events / worked_s if events and worked_s > 0 else None
    return Progress(_share(replay), rate_events_s, _eta_s(replay, worked_s))


def _worked_s(replay: Replay, now_ms: int) -> float:
    if replay.started_ms is None:
        return 0.0
    # The database's clock, which set the start, may be a little ahead of ours.
    return max(0, _until_ms(replay, now_ms) - replay.started_ms - replay.idle_ms) / 1000


def _until_ms(replay: Replay, now_ms: int) -> int:
    """When a worker had it last."""
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
