"""How live deliveries of one webhook went: counts of outcomes and of response times."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.domain.hours import HOUR_MS
from app.domain.windows import MINUTE_MS

TOOK_MS_BOUNDS: Final = (50, 100, 250, 500, 1_000, 2_500, 5_000)
"""The classes of response times: up to each of these and above the one before, and longer."""

TOOK_CLASSES: Final = len(TOOK_MS_BOUNDS) + 1

NOBODY_TOOK: Final = (0,) * TOOK_CLASSES


class Span(StrEnum):
    """Of which stretches of time events are counted together."""

    SETTLED = "settled"
    """Five minutes in which events were settled."""

    EVENT = "event"
    """An hour of the events' own times."""

    @property
    def width_ms(self) -> int:
        """How long a stretch is; each begins at a multiple of it."""
        return 5 * MINUTE_MS if self is Span.SETTLED else HOUR_MS


@dataclass(frozen=True, slots=True)
class DeliveryTally:
    """The events of one stretch of time, by what became of them when they were to be delivered.

    `took` counts the last attempts by their response times, see `TOOK_MS_BOUNDS`; it is kept for
    `Span.SETTLED` alone. Of the events that were missed, kept for `Span.EVENT` alone:
    `missed_until_ms` is just past the latest of their times, `missed_at_ms` when the last of them
    was settled; both are 0 without any.
    """

    start_ms: int
    delivered: int = 0
    failed: int = 0
    left_over: int = 0
    disabled: int = 0
    took: tuple[int, ...] = NOBODY_TOOK
    missed_until_ms: int = 0
    missed_at_ms: int = 0

    @property
    def settled(self) -> int:
        """All that were counted."""
        return self.delivered + self.missed

    @property
    def missed(self) -> int:
        """Those that no live delivery has brought."""
        return self.failed + self.left_over + self.disabled

    @property
    def success_rate(self) -> float | None:
        """The part that was delivered, 0 to 1, of the events that found the webhook ENABLED.

        None when there was no such event.
        """
        owed = self.delivered + self.failed + self.left_over
        return self.delivered / owed if owed else None

    def percentile_ms(self, share: float) -> float | None:
        """In how long this share (0 to 1) of the receiver's last answers was there, at most.

        One of `TOOK_MS_BOUNDS`, infinite beyond them; None when nothing was attempted.
        """
        asked = sum(self.took)
        if not asked:
            return None
        rank, seen = max(1, math.ceil(share * asked)), 0
        for bound, count in zip((*TOOK_MS_BOUNDS, math.inf), self.took, strict=True):
            seen += count
            if seen >= rank:
                return bound
        raise AssertionError("a rank is at most the number of all")


class CountedTally(NamedTuple):
    """What is to be added to the tally of a webhook for one stretch."""

    webhook_id: str
    span: Span
    tally: DeliveryTally


def at_most_text(took_ms: float | None) -> str:
    """A percentile as people read it: `<= 250 ms`, `> 5,000 ms`, `none`."""
    if took_ms is None:
        return "none"
    if math.isinf(took_ms):
        return f"> {TOOK_MS_BOUNDS[-1]:,} ms"
    return f"<= {took_ms:,.0f} ms"


def summed(tallies: Iterable[DeliveryTally], start_ms: int) -> DeliveryTally:
    """One tally of all, from `start_ms` on."""
    found = list(tallies)
    return DeliveryTally(
        start_ms,
        delivered=sum(each.delivered for each in found),
        failed=sum(each.failed for each in found),
        left_over=sum(each.left_over for each in found),
        disabled=sum(each.disabled for each in found),
        took=tuple(map(sum, zip(NOBODY_TOOK, *(each.took for each in found), strict=True))),
        missed_until_ms=max((each.missed_until_ms for each in found), default=0),
        missed_at_ms=max((each.missed_at_ms for each in found), default=0),
    )


def last_hour_from_ms(now_ms: int) -> int:
    """Where the stretches begin in which the last hour's events were settled."""
    return (now_ms - HOUR_MS) // Span.SETTLED.width_ms * Span.SETTLED.width_ms
