"""Delivery statistics: outcomes and latencies of live deliveries, per webhook and time span."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.domain.delivery import LiveOutcome
from app.domain.hours import HOUR_MS
from app.domain.windows import MINUTE_MS

TOOK_MS_BOUNDS: Final = (50, 100, 250, 500, 1_000, 2_500, 5_000)
"""Upper bounds of the latency buckets; a last bucket holds longer response times."""

TOOK_CLASSES: Final = len(TOOK_MS_BOUNDS) + 1

NO_ATTEMPTS: Final = (0,) * TOOK_CLASSES

CELLS_MAX: Final = 100_000
"""Tallies in memory that wait for the database, per kind of span. Each takes some 350 bytes."""

AHEAD_MS: Final = HOUR_MS
"""How far an event time may lie in the future; events beyond it are not counted by event time."""


class Span(StrEnum):
    """By which time events are grouped."""

    SETTLED = "settled"
    """By the time of their outcome, in spans of five minutes."""

    EVENT = "event"
    """By their event time, in spans of an hour."""

    @property
    def width_ms(self) -> int:
        """Length of a span; each starts at a multiple of it."""
        return 5 * MINUTE_MS if self is Span.SETTLED else HOUR_MS


@dataclass(frozen=True, slots=True)
class DeliveryTally:
    """The events of one span, counted by outcome.

    `took` counts last attempts by latency bucket, see `TOOK_MS_BOUNDS`. Only for `Span.EVENT`:
    `missed_from_ms` is the earliest event time of a missed event, 0 if unknown, `missed_until_ms`
    1 ms after the latest one, and `missed_at_ms` the time of the last missed event's outcome; all
    are 0 without any.
    """

    start_ms: int
    delivered: int = 0
    failed: int = 0
    skipped: int = 0
    disabled: int = 0
    took: tuple[int, ...] = NO_ATTEMPTS
    missed_until_ms: int = 0
    missed_at_ms: int = 0
    missed_from_ms: int = 0

    @property
    def settled(self) -> int:
        """The number of events."""
        return self.delivered + self.missed

    @property
    def missed(self) -> int:
        """The number of events that were not delivered."""
        return self.failed + self.skipped + self.disabled

    @property
    def success_rate(self) -> float | None:
        """The delivered share, 0 to 1, of events for an ENABLED webhook; None without any."""
        enabled = self.delivered + self.failed + self.skipped
        return self.delivered / enabled if enabled else None

    def percentile_ms(self, share: float) -> float | None:
        """An upper bound of the latency percentile `share` (0 to 1) of the last attempts.

        One of `TOOK_MS_BOUNDS`, or infinity above them; None without attempts.
        """
        attempts = sum(self.took)
        if not attempts:
            return None
        rank, seen = max(1, math.ceil(share * attempts)), 0
        for bound, count in zip((*TOOK_MS_BOUNDS, math.inf), self.took, strict=True):
            seen += count
            if seen >= rank:
                return bound
        raise AssertionError("the rank is at most the number of attempts")


class CountedTally(NamedTuple):
    """A tally to add to those stored for a webhook and span."""

    webhook_id: str
    span: Span
    tally: DeliveryTally


def summed(tallies: Iterable[DeliveryTally], start_ms: int) -> DeliveryTally:
    """The sum of the tallies, as one that starts at `start_ms`."""
    found = list(tallies)
    return DeliveryTally(
        start_ms,
        delivered=sum(each.delivered for each in found),
        failed=sum(each.failed for each in found),
        skipped=sum(each.skipped for each in found),
        disabled=sum(each.disabled for each in found),
        took=tuple(map(sum, zip(NO_ATTEMPTS, *(each.took for each in found), strict=True))),
        missed_until_ms=max((each.missed_until_ms for each in found), default=0),
        missed_at_ms=max((each.missed_at_ms for each in found), default=0),
        missed_from_ms=min((each.missed_from_ms for each in found if each.missed), default=0),
    )


def merged(
    tallies: Iterable[DeliveryTally], from_ms: int, to_ms: int, width_ms: int
) -> tuple[DeliveryTally, ...]:
    """The sums per `width_ms` of `[from_ms, to_ms)`, in order; without events they are zero."""
    found: dict[int, list[DeliveryTally]] = {}
    for each in tallies:
        found.setdefault((each.start_ms - from_ms) // width_ms, []).append(each)
    starts = range(from_ms, to_ms, width_ms)
    return tuple(summed(found.get(place, ()), start) for place, start in enumerate(starts))


def last_hour_from_ms(now_ms: int) -> int:
    """The start of the first span that holds outcomes of the last hour."""
    return (now_ms - HOUR_MS) // Span.SETTLED.width_ms * Span.SETTLED.width_ms


_PLACES: Final = {
    LiveOutcome.DELIVERED: 0,
    LiveOutcome.FAILED: 1,
    LiveOutcome.SKIPPED: 2,
    LiveOutcome.DISABLED: 3,
}
_OUTCOMES: Final = len(_PLACES)
_COUNTS: Final = _OUTCOMES + TOOK_CLASSES
_UNTIL: Final = _COUNTS
_AT: Final = _COUNTS + 1
_FROM: Final = _COUNTS + 2
_SETTLED_WIDTH_MS: Final = Span.SETTLED.width_ms

_Cells = dict[tuple[str, int], list[int]]
"""By webhook and number of the span: outcome counts and latency buckets, of events also times."""


class SettledDelivery(NamedTuple):
    """A live delivery with its outcome. `took_ms` is its last attempt's latency, None without."""

    webhook_id: str
    outcome: LiveOutcome
    event_ms: int
    settled_ms: int
    took_ms: float | None


class TallyCounter:
    """Counts deliveries until `drain`, in bounded memory.

    Events older than `history_ms` at their outcome are not counted by event time: replays cannot
    reach them. `lost` is called for each count that `CELLS_MAX` leaves no room for.
    """

    def __init__(self, history_ms: int, lost: Callable[[], None]) -> None:
        self._history_ms = history_ms
        self._lost = lost
        self._settled: _Cells = {}
        self._events: _Cells = {}

    def __bool__(self) -> bool:
        return bool(self._settled or self._events)

    def count_delivery(self, settled: SettledDelivery) -> None:
        """Count one delivery. It runs for every event and costs a few dictionary lookups."""
        webhook_id, outcome, event_ms, settled_ms, took_ms = settled
        place = _PLACES[outcome]
        bucket = 0 if took_ms is None else _OUTCOMES + bisect_left(TOOK_MS_BOUNDS, took_ms)
        key = (webhook_id, settled_ms // _SETTLED_WIDTH_MS)
        cell = self._settled.get(key) or self._add(self._settled, key, _COUNTS)
        if cell is not None:
            cell[place] += 1
            if bucket:
                cell[bucket] += 1
        if not -AHEAD_MS <= settled_ms - event_ms <= self._history_ms:
            return
        key = (webhook_id, event_ms // HOUR_MS)
        cell = self._events.get(key) or self._add(self._events, key, _COUNTS + 3)
        if cell is not None:
            cell[place] += 1
            if bucket:
                cell[bucket] += 1
            if place:
                cell[_UNTIL] = max(cell[_UNTIL], event_ms + 1)
                cell[_AT] = max(cell[_AT], settled_ms)
                cell[_FROM] = min(cell[_FROM] or event_ms, event_ms)

    def drain(self) -> Callable[[], list[CountedTally]]:
        """Reset all counts; returns a function that builds the tallies once, on any thread."""
        settled, self._settled = self._settled, {}
        events, self._events = self._events, {}
        return lambda: [*map(_settled_tally, settled.items()), *map(_event_tally, events.items())]

    def _add(self, cells: _Cells, key: tuple[str, int], size: int) -> list[int] | None:
        if len(cells) >= CELLS_MAX:
            self._lost()
            return None
        cell = cells[key] = [0] * size
        return cell


def _settled_tally(item: tuple[tuple[str, int], list[int]]) -> CountedTally:
    (webhook_id, number), (delivered, failed, skipped, disabled, *took) = item
    start_ms = number * _SETTLED_WIDTH_MS
    tally = DeliveryTally(start_ms, delivered, failed, skipped, disabled, tuple(took))
    return CountedTally(webhook_id, Span.SETTLED, tally)


def _event_tally(item: tuple[tuple[str, int], list[int]]) -> CountedTally:
    (webhook_id, hour), (delivered, failed, skipped, disabled, *rest) = item
    *took, until_ms, at_ms, from_ms = rest
    tally = DeliveryTally(
        hour * HOUR_MS,
        delivered,
        failed,
        skipped,
        disabled,
        tuple(took),
        missed_until_ms=until_ms,
        missed_at_ms=at_ms,
        missed_from_ms=from_ms,
    )
    return CountedTally(webhook_id, Span.EVENT, tally)


def tallies_of(settled: Iterable[SettledDelivery], history_ms: int) -> list[CountedTally]:
    """The tallies of a few deliveries; `history_ms` is as in `TallyCounter`."""
    counter = TallyCounter(history_ms, lost=lambda: None)
    for each in settled:
        counter.count_delivery(each)
    return counter.drain()()
