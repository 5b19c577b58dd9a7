"""What was read and is not yet delivered: bounded, whatever the receiver does."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from app.domain.checkpointing import DeliveryLedger, Entry
from app.domain.hours import Tally, tally
from app.domain.model import Failure
from app.replay_workers.packing import Packed, Parcel

BYTES_MAX: Final = 8 * 2**20
"""Bodies that one replay holds; a single larger one is let in when there is no other."""

EVENTS_MAX: Final = 10_000
"""Events settled or open above the checkpoint. One that is retried holds the checkpoint back while
later ones go on; this bounds what a take-over would then deliver twice."""

PARCELS_PER_COURIER: Final = 2
"""However many events a parcel has, no courier waits for the reader."""


class Consignment(NamedTuple):
    """A parcel, and its place in the books."""

    entry: Entry
    parcel: Parcel


class Backlog:
    """Hands parcels from the intake to the couriers, in the order of the log."""

    def __init__(self, ledger: DeliveryLedger, couriers: int, parcel_events: int) -> None:
        self._ledger = ledger
        self._couriers = couriers
        self._events_max = max(EVENTS_MAX, PARCELS_PER_COURIER * couriers * parcel_events)
        self._queue: asyncio.Queue[Consignment | None] = asyncio.Queue()
        self._bytes = 0
        self._has_changed = asyncio.Event()

    async def take_in(self, packed: Packed) -> None:
        """Book what was packed; returns once there was room for all of it."""
        ledger = self._ledger
        for parcel in packed.parcels:
            while not self._has_room(parcel):
                self._has_changed.clear()
                await self._has_changed.wait()
            if parcel.duplicates_before:
                ledger.duplicate(parcel.start, parcel.duplicates_before)
            entry = ledger.open(parcel.start, parcel.end, parcel.hours, parcel.duplicates)
            self._bytes += parcel.bytes
            self._queue.put_nowait(Consignment(entry, parcel))
        if packed.duplicates:
            ledger.duplicate(packed.position, packed.duplicates)
        ledger.read_to(packed.position)

    def end(self) -> None:
        """Tell each courier that nothing more comes."""
        for _ in range(self._couriers):
            self._queue.put_nowait(None)

    async def next(self) -> Consignment | None:
        """The parcel that has waited longest; None after the last one."""
        return await self._queue.get()

    def settle(
        self, consignment: Consignment, delivered: Mapping[int, int], failures: Sequence[Failure]
    ) -> None:
        """Book that a parcel is done with: delivered, but for `failures`.

        `delivered` tells how many of its events were answered with each status.
        """
        failed_hours = _hours_of(failures, consignment.parcel) if failures else {}
        self._ledger.settle(consignment.entry, delivered, failures, failed_hours)
        self._bytes -= consignment.parcel.bytes
        self._has_changed.set()

    def _has_room(self, parcel: Parcel) -> bool:
        if not self._bytes:
            return True
        events = self._ledger.ahead + len(parcel.events)
        return events <= self._events_max and self._bytes + parcel.bytes <= BYTES_MAX


def _hours_of(failures: Sequence[Failure], parcel: Parcel) -> Tally:
    """How many of the failures among a parcel's events are of each hour."""
    offsets = {failure.offset for failure in failures}
    return tally([event.timestamp_ms for event in parcel.events if event.offset in offsets])
