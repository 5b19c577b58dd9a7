"""The hours in which a webhook missed events, and whether replays have brought these since."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.domain.hours import HOUR_MS
from app.domain.model import Window
from app.domain.tallies import DeliveryTally


@dataclass(frozen=True, slots=True)
class PastReplay:
    """A COMPLETED replay to its webhook's own URL, of all the types of events in its window.

    `retry_of` names the one whose failures are all that it brought.
    """

    id: str
    window: Window
    failed: int
    retry_of: str | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class MissedHour:
    """An hour of event time, of whose events `missed` were not delivered live.

    `is_replayed` when replays have brought all of them since. The window of a replay that does is
    [`start_ms`, `end_ms`).
    """

    start_ms: int
    failed: int
    left_over: int
    disabled: int
    is_replayed: bool

    @property
    def end_ms(self) -> int:
        """Where the next hour begins."""
        return self.start_ms + HOUR_MS

    @property
    def missed(self) -> int:
        """How many in all."""
        return self.failed + self.left_over + self.disabled


def missed_hours(
    tallies: Iterable[DeliveryTally], replays: Sequence[PastReplay]
) -> tuple[MissedHour, ...]:
    """The hours of event time in which something was missed, in the order of the tallies.

    An hour is replayed when the windows of replays that gave nothing up hold all times from its
    start to the last event that was missed. Only replays count that were created after the last of
    these was settled: an earlier one may have ended its reading before it was in the log.
    """
    whole = _whole(replays)
    return tuple(
        MissedHour(
            start_ms=tally.start_ms,
            failed=tally.failed,
            left_over=tally.left_over,
            disabled=tally.disabled,
            is_replayed=_is_covered(tally, whole),
        )
        for tally in tallies
        if tally.missed
    )


def _whole(replays: Sequence[PastReplay]) -> list[PastReplay]:
    """Those that brought everything, by themselves or with a replay of what they gave up."""
    retries: dict[str, list[PastReplay]] = {}
    for replay in replays:
        if replay.retry_of is not None:
            retries.setdefault(replay.retry_of, []).append(replay)
    firsts = (replay for replay in replays if replay.retry_of is None)
    return [replay for replay in firsts if _brought_all(replay, retries)]


def _brought_all(replay: PastReplay, retries: Mapping[str, Sequence[PastReplay]]) -> bool:
    # What a retry gives up may be retried itself; the chain has as many links as the owner made.
    waiting = [replay]
    while waiting:
        one = waiting.pop()
        if not one.failed:
            return True
        waiting += retries.get(one.id, ())
    return False


def _is_covered(tally: DeliveryTally, whole: Sequence[PastReplay]) -> bool:
    reached_ms = tally.start_ms
    windows = (each.window for each in whole if each.created_ms > tally.missed_at_ms)
    for window in sorted(windows, key=lambda each: each.from_ms):
        if window.from_ms > reached_ms:
            break
        reached_ms = max(reached_ms, window.to_ms)
    return reached_ms >= tally.missed_until_ms
