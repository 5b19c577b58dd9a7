"""Records of `delivery_log` that a mirror has brought from another data centre.

They are delivered where they were made. Here they wait for replays, should that data centre be
gone, and replays find by time what reached the log in time. So those that came late, as all do
after a mirror has stood still, are noted before they are done with.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from app.domain.lateness import Arrival
from app.live.late_events import LateEvents
from app.live.metrics import LiveMetrics
from app.live.parcel import Share
from app.log.event import LoggedEvent

WAITING_MAX: Final = 20_000
"""Late records that wait to be noted; with these, their partitions are read no further."""

HOLDER: Final = "mirrored records"
"""Whom a partition is held for: no webhook's id has a space in it."""

_GATHER_S: Final = 0.5
"""Each note is a row for each partition, however many records it tells of."""


class _Waiting(NamedTuple):
    share: Share
    arrival: Arrival


class MirroredRecords:
    """Counts foreign records and settles them, the late ones once they are noted."""

    def __init__(self, late: LateEvents, metrics: LiveMetrics) -> None:
        self._late = late
        self._metrics = metrics
        self._waiting: list[_Waiting] = []
        self._is_any = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether as many wait as may."""
        return len(self._waiting) >= WAITING_MAX

    def take(self, share: Share, event: LoggedEvent, now_ms: int) -> None:
        """Settle an open record of a share, at once or when it is noted."""
        self._metrics.mirrored.inc()
        if not self._late.is_late(event.timestamp_ms, now_ms):
            share.progress.settle(event.offset)
            return
        arrival = Arrival(event.timestamp_ms, share.partition, event.offset)
        self._waiting.append(_Waiting(share, arrival))
        self._is_any.set()

    async def note_unread(self, ends: Mapping[int, int]) -> None:
        """Return once it is noted what lies below these offsets, by partition, and is never read.

        A mirror may have brought it before there was anybody to see it come.
        """
        await self._late.note_unseen(ends)

    async def run(self, has_room: Callable[[Share], None]) -> None:
        """Note what comes until cancelled, and tell of each share whose records were noted.

        What ends with the process is open in what the group has committed, and read again.
        """
        while True:
            await self._is_any.wait()
            await asyncio.sleep(_GATHER_S)
            waiting = list(self._waiting)
            await self._late.note([each.arrival for each in waiting])
            del self._waiting[: len(waiting)]
            if not self._waiting:
                self._is_any.clear()
            for share, arrival in waiting:
                share.progress.settle(arrival.offset)
            for share in {each.share for each in waiting}:
                has_room(share)
