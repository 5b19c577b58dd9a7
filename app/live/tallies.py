"""Counts what became of events, by webhook and stretch of time, until somebody stores it."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from app.domain.hours import HOUR_MS
from app.domain.tallies import (
    TOOK_CLASSES,
    TOOK_MS_BOUNDS,
    CountedTally,
    DeliveryTally,
    Span,
)
from app.log.outcomes import LiveOutcome

CELLS_MAX: Final = 100_000
"""Counts that wait for the database, of each span: one for each webhook and stretch of time in
which it had events. Each takes some 350 bytes."""

AHEAD_MS: Final = HOUR_MS
"""How far the clock of who made an event may be ahead; what lies beyond has no hour to be in."""

_SETTLED_WIDTH_MS: Final = Span.SETTLED.width_ms

_PLACES: Final = {
    LiveOutcome.DELIVERED: 0,
    LiveOutcome.FAILED: 1,
    LiveOutcome.LEFT: 2,
    LiveOutcome.DISABLED: 3,
}
_OUTCOMES: Final = len(_PLACES)

_UNTIL: Final = _OUTCOMES
_AT: Final = _OUTCOMES + 1

_Cells = dict[tuple[str, int], list[int]]
"""By webhook and number of the stretch: the outcomes, then response times or the two latest."""


class Settled(NamedTuple):
    """An event that is done with. `took_ms` is how long its last attempt took, None without one."""

    webhook_id: str
    outcome: LiveOutcome
    event_ms: int
    settled_ms: int
    took_ms: float | None


class Tallies:
    """The counts since they were last taken, in bounded memory.

    Events older than `history_ms` when they are settled have no hour to be in: nobody could replay
    them. `lost` is called for each count that finds no room.
    """

    def __init__(self, history_ms: int, lost: Callable[[], None]) -> None:
        self._history_ms = history_ms
        self._lost = lost
        self._settled: _Cells = {}
        self._events: _Cells = {}

    def __bool__(self) -> bool:
        return bool(self._settled or self._events)

    def count(self, settled: Settled) -> None:
        """Count one event. This is done for each: a few look-ups."""
        webhook_id, outcome, event_ms, settled_ms, took_ms = settled
        place = _PLACES[outcome]
        key = (webhook_id, settled_ms // _SETTLED_WIDTH_MS)
        cell = self._settled.get(key) or self._new(self._settled, key, _OUTCOMES + TOOK_CLASSES)
        if cell is not None:
            cell[place] += 1
            if took_ms is not None:
                cell[_OUTCOMES + bisect_left(TOOK_MS_BOUNDS, took_ms)] += 1
        if not -AHEAD_MS <= settled_ms - event_ms <= self._history_ms:
            return
        key = (webhook_id, event_ms // HOUR_MS)
        cell = self._events.get(key) or self._new(self._events, key, _OUTCOMES + 2)
        if cell is not None:
            cell[place] += 1
            if place:
                cell[_UNTIL] = max(cell[_UNTIL], event_ms + 1)
                cell[_AT] = max(cell[_AT], settled_ms)

    def _new(self, cells: _Cells, key: tuple[str, int], size: int) -> list[int] | None:
        if len(cells) >= CELLS_MAX:
            self._lost()
            return None
        cell = cells[key] = [0] * size
        return cell

    def take(self) -> Callable[[], list[CountedTally]]:
        """All counts, which are forgotten here; to be asked for once, and from any thread."""
        settled, self._settled = self._settled, {}
        events, self._events = self._events, {}
        return lambda: [*map(_of_settled, settled.items()), *map(_of_events, events.items())]


def _of_settled(item: tuple[tuple[str, int], list[int]]) -> CountedTally:
    (webhook_id, number), (delivered, failed, left_over, disabled, *took) = item
    start_ms = number * _SETTLED_WIDTH_MS
    tally = DeliveryTally(start_ms, delivered, failed, left_over, disabled, tuple(took))
    return CountedTally(webhook_id, Span.SETTLED, tally)


def _of_events(item: tuple[tuple[str, int], list[int]]) -> CountedTally:
    (webhook_id, hour), (delivered, failed, left_over, disabled, until_ms, at_ms) = item
    tally = DeliveryTally(
        hour * HOUR_MS,
        delivered,
        failed,
        left_over,
        disabled,
        missed_until_ms=until_ms,
        missed_at_ms=at_ms,
    )
    return CountedTally(webhook_id, Span.EVENT, tally)
