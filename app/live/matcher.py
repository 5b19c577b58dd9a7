"""The first stage: events -> rules -> delivery_log.

Events are matched and published in the order in which they were read, many at a time. A position is
committed when the log has acknowledged the deliveries of every event below it. An event without a
match is matched again with a refreshed routing table, so that every rule older than the event
applies.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from app.live.avro_events import AvroEvents
from app.live.commits import commit_regularly
from app.live.late_events import LateEvents
from app.live.loop_turns import LoopTurns
from app.live.metrics import LiveMetrics
from app.live.received_reports import ReceivedReports
from app.live.routing import RoutingTable
from app.log.errors import LogError
from app.log.event import (
    LoggedEvent,
    NewEvent,
    is_presentable,
    members_of,
    place_name,
    printable_text,
)
from app.log.group_position import Committed, GroupPosition
from app.log.group_reader import GroupReader
from app.log.publisher import EventPublisher, Publication
from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.client.log_bounds import Bounds

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

_log: Final = logging.getLogger(__name__)

GROUP: Final = "rewind-live"

DELIVERIES_PER_PUBLISH: Final = 5_000
"""Deliveries that are published at a time: one event may match very many webhooks."""

PENDING_MAX: Final = 30_000
"""Records that are read and not acknowledged; above this number, partitions are paused."""

TYPE_CHARS_MAX: Final = 256
EVENT_BYTES_MAX: Final = 900_000
"""A larger event would exceed the record size of `delivery_log`, with its further headers."""

COMMIT_S: Final = 0.25
_RETRY_S: Final = 1.0
_REVOKE_S: Final = 5.0
_POLL_S: Final = 0.01


@dataclass(slots=True)
class _ReadRange:
    """Records of one partition from one read; `end` is the offset after the last one."""

    end: int
    is_done: bool = False
    """Whether the log has acknowledged their deliveries."""


@dataclass(slots=True)
class _MatcherPartition:
    """A partition of `events` while it is assigned to this process."""

    done_below: int
    committed: Committed
    ranges: deque[_ReadRange] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        """Whether everything read is done."""
        self._advance()
        return not self.ranges

    def position(self) -> Committed:
        """The position to commit: everything below it is done."""
        self._advance()
        return Committed(self.done_below, "")

    def _advance(self) -> None:
        while self.ranges and self.ranges[0].is_done:
            self.done_below = self.ranges.popleft().end


class _Read(NamedTuple):
    """The events of one read, and the ranges that are done with them."""

    events: Mapping[int, Sequence[LoggedEvent]]
    ranges: Sequence[_ReadRange]
    records: int
    read_s: float
    """The time of the read, as `time.monotonic` counts."""


class _NamedEvent(NamedTuple):
    """An event with its final id, type and account."""

    event_id: str
    event_type: str
    event: LoggedEvent

    def delivery_to(self, webhook_id: str) -> NewEvent:
        """The record of `delivery_log`, with the value and time of the event."""
        event = self.event
        return NewEvent(
            webhook_id,
            self.event_id,
            self.event_type,
            event.timestamp_ms,
            event.value,
            event.account_id,
        )


class _Publishing(NamedTuple):
    """Deliveries that are being published."""

    deliveries: list[NewEvent]
    publication: Publication


class Matcher:
    """Matches every event against the rules and logs a delivery for each matching webhook."""

    def __init__(
        self,
        table: RoutingTable,
        publisher: EventPublisher,
        late: LateEvents,
        metrics: LiveMetrics,
        origin: str,
        *,
        decoder: "AvroDecoder | None" = None,
        reports: ReceivedReports | None = None,
    ) -> None:
        self._table = table
        self._publisher = publisher
        self._late = late
        self._metrics = metrics
        self._own_origins = ("", origin)
        self._avro = None if decoder is None else AvroEvents(decoder, metrics, self._skip_malformed)
        self._reports = reports
        self._partitions: dict[int, _MatcherPartition] = {}
        self._reads: asyncio.Queue[_Read] = asyncio.Queue()
        self._paused: set[int] = set()
        self._changed = asyncio.Event()
        """Set when there may be something to commit."""
        self.pending = 0
        """The number of records that are read and not acknowledged."""

    async def run(self, reader: GroupReader) -> None:
        """Match events until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                commit_regularly(reader, self._partitions, self._reports, COMMIT_S, self._changed)
            )
            while True:
                self._pause_or_resume(reader)
                read = await self._reads.get()
                if self._avro is not None:
                    events = await self._avro.decode(read.events, read.read_s)
                    read = read._replace(events=events)
                publishing, unmatched = await self._publish_matches(read)
                group.create_task(self._finish(read, publishing, unmatched, reader))

    async def start_partitions(self, positions: Mapping[int, GroupPosition]) -> dict[int, int]:
        """The offsets to read from: the committed positions, or the first event for a new group."""
        self._changed.set()
        return {partition: self._begin(partition, *each) for partition, each in positions.items()}

    def _begin(self, partition: int, committed: Committed | None, bounds: Bounds) -> int:
        start = bounds.low if committed is None else max(committed.position, bounds.low)
        self._partitions[partition] = _MatcherPartition(start, Committed(start, ""))
        return start

    def process_events(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        """Queue records to be matched."""
        ranges = []
        for number, some in events.items():
            ranges.append(_ReadRange(some[-1].offset + 1))
            if partition := self._partitions.get(number):
                partition.ranges.append(ranges[-1])
                self._count_received(some)
        count = sum(map(len, events.values()))
        self.pending += count
        self._changed.set()
        self._reads.put_nowait(_Read(events, ranges, count, time.monotonic()))

    def skip_to(self, partition: int, offset: int) -> None:
        """Treat the unread offsets below `offset` as done: their batches cannot be read."""
        if assigned := self._partitions.get(partition):
            assigned.ranges.append(_ReadRange(offset, is_done=True))
            self._changed.set()

    async def release_partitions(self, partitions: Sequence[int]) -> dict[int, Committed]:
        """Wait up to a limit for pending records; the positions to commit."""
        revoked = {each: self._partitions[each] for each in partitions if each in self._partitions}
        deadline = time.monotonic() + _REVOKE_S
        while not all(partition.is_idle for partition in revoked.values()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_S)
        self.drop_partitions(partitions)
        if self._reports is not None:
            await self._reports.report_before_release()
        return {number: partition.position() for number, partition in revoked.items()}

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        """Commit nothing more in these partitions."""
        for partition in partitions:
            self._partitions.pop(partition, None)
            self._paused.discard(partition)

    def _count_received(self, events: Sequence[LoggedEvent]) -> None:
        if self._reports is not None:
            for event in events:
                self._reports.count_event(event)

    async def _publish_matches(self, read: _Read) -> tuple[list[_Publishing], list[_NamedEvent]]:
        """Start to publish the deliveries; returns them, and the events without a match."""
        publishing: list[_Publishing] = []
        unmatched: list[_NamedEvent] = []
        deliveries: list[NewEvent] = []
        matched = 0
        turns = LoopTurns()
        for named in self._named(read.events):
            webhook_ids = self._table.match(
                named.event_type, named.event.value, named.event.account_id
            )
            if webhook_ids:
                matched += 1
            else:
                unmatched.append(named)
            for webhook_id in webhook_ids:
                deliveries.append(named.delivery_to(webhook_id))
                if len(deliveries) >= DELIVERIES_PER_PUBLISH:
                    publishing.append(await self._publish(deliveries))
                    deliveries = []
            await turns.yield_if_long()
        if deliveries:
            publishing.append(await self._publish(deliveries))
        self._metrics.count_events("matched", matched)
        return publishing, unmatched

    def _named(self, events: Mapping[int, Sequence[LoggedEvent]]) -> Iterator[_NamedEvent]:
        """The events that can match rules; others are counted and skipped."""
        for partition, some in events.items():
            for event in some:
                if event.origin not in self._own_origins:
                    # A mirror copied it; its own data centre matches it.
                    self._metrics.count_events("mirrored", 1)
                    continue
                named = _name(event, partition)
                if named is None:
                    place = place_name(EVENTS, partition, event.offset)
                    self._skip_malformed(
                        place, "no type, no value, a time before 1970, or too large"
                    )
                else:
                    yield named

    def _skip_malformed(self, place: str, reason: str) -> None:
        self._metrics.count_events("malformed", 1)
        _log.warning("event-malformed", extra={"place": place, "reason": reason})

    async def _finish(
        self,
        read: _Read,
        publishing: list[_Publishing],
        unmatched: list[_NamedEvent],
        reader: GroupReader,
    ) -> None:
        for each in publishing:
            await self._wait_until_logged(each)
        if unmatched:
            await self._match_again(unmatched)
        for each_range in read.ranges:
            each_range.is_done = True
        self.pending -= read.records
        self._pause_or_resume(reader)

    async def _match_again(self, unmatched: list[_NamedEvent]) -> None:
        """Publish the deliveries that a refreshed routing table yields."""
        await self._table.wait_until_refreshed()
        matched = 0
        turns = LoopTurns()
        for named in unmatched:
            await turns.yield_if_long()
            webhook_ids = self._table.match(
                named.event_type, named.event.value, named.event.account_id
            )
            if webhook_ids:
                matched += 1
                deliveries = list(map(named.delivery_to, webhook_ids))
                await self._wait_until_logged(await self._publish(deliveries))
        self._metrics.count_events("matched", matched)
        self._metrics.count_events("unmatched", len(unmatched) - matched)

    async def _publish(self, deliveries: list[NewEvent]) -> _Publishing:
        return _Publishing(deliveries, await self._publisher.begin(DELIVERY_LOG, deliveries))

    async def _wait_until_logged(self, publishing: _Publishing) -> None:
        """Return when the log has acknowledged all deliveries; publish again until it has."""
        while True:
            try:
                arrivals = await publishing.publication.all_settled()
            except LogError as error:
                _log.warning("deliveries-not-acknowledged", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)
                # Some may be stored; the deliverer detects the copies by id and body.
                publishing = await self._publish(publishing.deliveries)
            else:
                break
        self._metrics.matched_deliveries.inc(len(publishing.deliveries))
        await self._late.store_late(arrivals)

    def _pause_or_resume(self, reader: GroupReader) -> None:
        """Pause all partitions while too many records are pending."""
        if self.pending >= PENDING_MAX:
            for partition in self._partitions.keys() - self._paused:
                self._paused.add(partition)
                reader.hold(partition)
        elif self.pending <= PENDING_MAX // 2:
            while self._paused:
                reader.release(self._paused.pop())


def _name(event: LoggedEvent, partition: int) -> _NamedEvent | None:
    """The event with its id and type; None if it cannot be matched or delivered.

    They are headers of the record, or members `id` and `type` of the JSON object; with these, the
    member `accountId` counts as well. An event without an id is named by its position.
    """
    if not event.value or event.timestamp_ms < 0:
        return None
    event_id, event_type = event.event_id, event.event_type
    if not (event_id and event_type):
        members = members_of(event.value)
        event_id = event_id or printable_text(members.get("id"))
        event_type = event_type or printable_text(members.get("type"))
        if event.account_id is None:
            event = event._replace(account_id=_account(members))
    if not is_presentable(event_id):
        event_id = place_name(EVENTS, partition, event.offset)
    if not 1 <= len(event_type) <= TYPE_CHARS_MAX:
        return None
    if len(event.value) + len(event_id) > EVENT_BYTES_MAX:
        return None
    return _NamedEvent(event_id, event_type, event)


def _account(members: dict[str, Any]) -> str | None:
    """The member `accountId`; a malformed one is the id of no account, so it matches nothing."""
    member = members.get("accountId")
    return None if member is None else printable_text(member)
