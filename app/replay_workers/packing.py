"""Events put together to what one request brings."""

from typing import Final, NamedTuple

from app.domain.hours import Tally, tally
from app.log.event import LoggedEvent

BYTES_MAX: Final = 2**20
"""A parcel of several events is no larger than that; one event alone may be."""


class Parcel(NamedTuple):
    """Events in the order of the log, that go together; `hours` tells how many are of each hour.

    `duplicates_before` lie between the parcel before and this one, and `duplicates` between its
    first event and `end`, which is the offset behind all that.
    """

    events: list[LoggedEvent]
    hours: Tally
    bytes: int
    end: int
    duplicates_before: Tally
    duplicates: Tally

    @property
    def start(self) -> int:
        """The offset of the first event."""
        return self.events[0].offset


class Packed(NamedTuple):
    """What was packed since the last time.

    `duplicates` follow the last parcel; all that lies below `position` is in a parcel, a
    duplicate, or not wanted.
    """

    parcels: list[Parcel]
    duplicates: Tally
    position: int


class Packer:
    """Fills parcels with up to `events_max` events, one after the other."""

    def __init__(self, events_max: int) -> None:
        self._events_max = events_max
        self._closed: list[Parcel] = []
        self._before: list[int] = []
        self._begin()

    @property
    def is_filling(self) -> bool:
        """Whether a parcel is begun and not full."""
        return bool(self._events)

    def add(self, event: LoggedEvent) -> None:
        """Take in the next event."""
        size = len(event.value) + 1  # and a comma
        if self._events and self._bytes + size > BYTES_MAX:
            self.close()
        self._events.append(event)
        self._bytes += size
        self._end = event.offset + 1
        if len(self._events) >= self._events_max:
            self.close()

    def duplicate(self, event: LoggedEvent) -> None:
        """Take note of a duplicate that comes next."""
        if self._events:
            self._duplicates.append(event.timestamp_ms)
            self._end = event.offset + 1
        else:
            self._before.append(event.timestamp_ms)

    def close(self) -> None:
        """Have the parcel that is begun go as it is."""
        if self._events:
            parcel = Parcel(
                self._events,
                tally([event.timestamp_ms for event in self._events]),
                self._bytes,
                self._end,
                tally(self._before),
                tally(self._duplicates),
            )
            self._closed.append(parcel)
            self._before = []
            self._begin()

    def take(self, position: int) -> Packed:
        """All parcels that are full; everything below `position` was added."""
        closed, self._closed = self._closed, []
        # Those before a parcel that is begun lie below the position, too.
        before, self._before = tally(self._before), []
        return Packed(closed, before, self._events[0].offset if self._events else position)

    def _begin(self) -> None:
        self._events: list[LoggedEvent] = []
        self._bytes = 0
        self._duplicates: list[int] = []
        self._end = 0
