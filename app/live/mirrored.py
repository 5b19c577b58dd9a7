"""Records of `delivery_log` that a mirror copied from another data centre.

They are delivered where they were published. Here they serve replays, should that data centre fail.
Replays find by time only records that arrived in time. So the positions of late ones are stored
before they are settled; after an outage of the mirror, all of them are late.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from app.domain.lateness import Arrival
from app.live.delivery import DeliveryPartition
from app.live.late_events import LateEvents
from app.live.metrics import LiveMetrics
from app.log.event import LoggedEvent

WAITING_MAX: Final = 20_000
"""Late records that wait to be stored; above this number, their partitions are paused."""

PAUSED_FOR_MIRRORED: Final = "mirrored records"
"""Stands for a webhook id in `paused_for`; no webhook id contains a space."""

_GATHER_S: Final = 0.5
"""A write is one row per partition, however many records it covers."""


class _WaitingRecord(NamedTuple):
    partition: DeliveryPartition
    arrival: Arrival


class MirroredRecords:
    """Counts mirrored records and settles them, late ones after their position is stored."""

    def __init__(self, late: LateEvents, metrics: LiveMetrics) -> None:
        self._late = late
        self._metrics = metrics
        self._waiting: list[_WaitingRecord] = []
        self._has_waiting = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether `WAITING_MAX` records wait."""
        return len(self._waiting) >= WAITING_MAX

    def add(self, partition: DeliveryPartition, event: LoggedEvent, now_ms: int) -> None:
        """Settle a mirrored record, at once or when its position is stored."""
        self._metrics.mirrored.inc()
        if not self._late.is_late(event.timestamp_ms, now_ms):
            partition.progress.settle(event.offset)
            return
        arrival = Arrival(event.timestamp_ms, partition.partition, event.offset)
        self._waiting.append(_WaitingRecord(partition, arrival))
        self._has_waiting.set()

    async def store_unread(self, ends: Mapping[int, int]) -> None:
        """Store that records below these offsets, by partition, may be late: nothing reads them."""
        await self._late.store_unseen(ends)

    async def run(self, resume: Callable[[DeliveryPartition], None]) -> None:
        """Store positions until cancelled; `resume` is called for each partition with room again.

        Records that wait when the process ends are unsettled in the commit, and read again.
        """
        while True:
            await self._has_waiting.wait()
            await asyncio.sleep(_GATHER_S)
            waiting = list(self._waiting)
            await self._late.store_late([each.arrival for each in waiting])
            del self._waiting[: len(waiting)]
            if not self._waiting:
                self._has_waiting.clear()
            for partition, arrival in waiting:
                partition.progress.settle(arrival.offset)
            for partition in {each.partition for each in waiting}:
                resume(partition)
