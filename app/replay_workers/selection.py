"""Which of the events in its window a replay brings: all, or those that are still missing."""

from dataclasses import dataclass, field
from typing import Final

from app.domain.globs import glob_matches
from app.domain.offset_set import OffsetSet
from app.log.delivered import DeliveredEvents
from app.log.event import LoggedEvent

_TYPES_KEPT: Final = 10_000
"""Types come from producers, who may make up a new one for every event."""


@dataclass(slots=True)
class Selection:
    """What the options of one replay let through.

    `failed` are the only offsets that a retry is about; `delivered` the events that need no replay.
    """

    event_types: tuple[str, ...] = ()
    failed: OffsetSet | None = None
    delivered: DeliveredEvents | None = None
    _known: dict[str, bool] = field(default_factory=dict)

    def concerns(self, event: LoggedEvent) -> bool:
        """Whether the replay is about such an event."""
        if self.event_types and not self._fits(event.event_type):
            return False
        return self.failed is None or event.offset in self.failed

    def is_missing(self, event: LoggedEvent) -> bool:
        """Whether the event did not reach its receiver already."""
        return self.delivered is None or event not in self.delivered

    def _fits(self, event_type: str) -> bool:
        fits = self._known.get(event_type)
        if fits is None:
            if len(self._known) >= _TYPES_KEPT:
                self._known.clear()
            fits = any(glob_matches(glob, event_type) for glob in self.event_types)
            self._known[event_type] = fits
        return fits
