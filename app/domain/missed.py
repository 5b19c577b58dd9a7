"""The hours in which a webhook missed events, and whether replays have delivered them since."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.hours import HOUR_MS
from app.domain.model import Window
from app.domain.tallies import DeliveryTally


@dataclass(frozen=True, slots=True)
class PastReplay:
    """A COMPLETED replay of all event types in its window to its webhook's own URL.

    `retry_of` is the replay whose failures it retried, `origin` the only data centre whose events
    it sent, None for all.
    """

    id: str
    window: Window
    failed: int
    retry_of: str | None
    created_ms: int
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class MissedHour:
    """An hour of event time in which events were not delivered live.

    `is_replayed` says whether replays have delivered all of them since. The window of a replay that
    would is [`start_ms`, `end_ms`).
    """

    start_ms: int
    failed: int
    skipped: int
    disabled: int
    is_replayed: bool

    @property
    def end_ms(self) -> int:
        """The start of the next hour."""
        return self.start_ms + HOUR_MS

    @property
    def missed(self) -> int:
        """The number of missed events."""
        return self.failed + self.skipped + self.disabled

    def plus(self, other: "MissedHour") -> "MissedHour":
        """The hour with the missed events of another data centre, too."""
        return MissedHour(
            self.start_ms,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.disabled + other.disabled,
            self.is_replayed and other.is_replayed,
        )


def missed_hours(
    tallies: Iterable[tuple[str, DeliveryTally]], replays: Sequence[PastReplay]
) -> tuple[MissedHour, ...]:
    """The hours with missed events, in the order of the tallies, which name their data centres.

    An hour is replayed if the windows of replays without failures cover all times from its first
    missed event, or its start if that is unknown, to its last one. Only replays created after the
    outcome of the last one count: an earlier one may have stopped reading before the event was in
    the log. This holds for the events of each data centre, because a recovery sends those of its
    own.
    """
    successful = _successful(replays)
    hours: dict[int, MissedHour] = {}
    for origin, tally in tallies:
        if tally.missed:
            of_origin = [each for each in successful if each.origin in (None, origin)]
            hour = _missed_hour(tally, of_origin)
            earlier = hours.get(tally.start_ms)
            hours[tally.start_ms] = hour if earlier is None else earlier.plus(hour)
    return tuple(hours.values())


def _missed_hour(tally: DeliveryTally, successful: Sequence[PastReplay]) -> MissedHour:
    return MissedHour(
        start_ms=tally.start_ms,
        failed=tally.failed,
        skipped=tally.skipped,
        disabled=tally.disabled,
        is_replayed=_is_covered(tally, successful),
    )


def _successful(replays: Sequence[PastReplay]) -> list[PastReplay]:
    """The replays that delivered everything, by themselves or with retries of their failures."""
    retries: dict[str, list[PastReplay]] = {}
    for replay in replays:
        if replay.retry_of is not None:
            retries.setdefault(replay.retry_of, []).append(replay)
    firsts = (replay for replay in replays if replay.retry_of is None)
    return [replay for replay in firsts if _has_no_failures_left(replay, retries)]


def _has_no_failures_left(replay: PastReplay, retries: Mapping[str, Sequence[PastReplay]]) -> bool:
    # A retry may have failures, which may be retried in turn, any number of times.
    waiting = [replay]
    while waiting:
        one = waiting.pop()
        if not one.failed:
            return True
        waiting += retries.get(one.id, ())
    return False


def _is_covered(tally: DeliveryTally, successful: Sequence[PastReplay]) -> bool:
    reached_ms = tally.missed_from_ms or tally.start_ms
    windows = (each.window for each in successful if each.created_ms > tally.missed_at_ms)
    for window in sorted(windows, key=lambda each: each.from_ms):
        if window.from_ms > reached_ms:
            break
        reached_ms = max(reached_ms, window.to_ms)
    return reached_ms >= tally.missed_until_ms
