"""The first stage: events -> rules -> delivery_log, committed once the log has acknowledged it.

Events are matched and handed to the publisher in the order in which they were read, many at a
time; a position is committed when everything below it is acknowledged. An event that nobody wants
is looked at once more with a fresh routing table, so that a rule which was there before the event
counts however old the copy was.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from app.live.avro_events import AvroEvents
from app.live.commits import commit_regularly
from app.live.late_events import LateEvents
from app.live.metrics import LiveMetrics
from app.live.received_reports import ReceivedReports
from app.live.routing import RoutingTable
from app.log.errors import LogError
from app.log.event import LoggedEvent, OwedEvent, is_presentable, place_name
from app.log.group_position import Bounds, Committed, Position
from app.log.group_reader import GroupReader
from app.log.publisher import EventPublisher, Publication
from app.log.topics import DELIVERY_LOG, EVENTS

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

_log: Final = logging.getLogger(__name__)

GROUP: Final = "rewind-live"

OWED_MAX: Final = 5_000
"""Owed events that are handed over at a time: one event may be owed to very many webhooks."""

UNDER_WAY_MAX: Final = 30_000
"""Records that are read and not acknowledged; with these, a partition is read no further."""

TYPE_CHARS_MAX: Final = 256
EVENT_BYTES_MAX: Final = 900_000
"""What is larger could not be written to `delivery_log`, whose records have headers of ours too."""

COMMIT_S: Final = 0.1
_RETRY_S: Final = 1.0
_LET_GO_S: Final = 5.0
_LOOK_S: Final = 0.01
_TURN_RECORDS: Final = 50


@dataclass(slots=True)
class _Piece:
    """Records that were read of one partition at a time; done when all are acknowledged."""

    end: int
    is_done: bool = False


@dataclass(slots=True)
class _Share:
    """A partition while this process has it."""

    position: int
    committed: Committed
    pieces: deque[_Piece] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        """Whether all that was read is done."""
        self.advance()
        return not self.pieces

    def reached(self) -> Committed:
        """What may be stored: all below it is done."""
        return Committed(self.advance(), "")

    def advance(self) -> int:
        """The offset below which all is done."""
        while self.pieces and self.pieces[0].is_done:
            self.position = self.pieces.popleft().end
        return self.position


class _Read(NamedTuple):
    """What was read at a time, with the pieces that are done once it is."""

    events: Mapping[int, Sequence[LoggedEvent]]
    pieces: Sequence[_Piece]
    records: int
    read_s: float
    """When it had come, as `time.monotonic` counts."""


class _Named(NamedTuple):
    """An event with the id and type that it is known by from here on."""

    event_id: str
    event_type: str
    event: LoggedEvent

    def owed_to(self, webhook_id: str) -> OwedEvent:
        """The record of `delivery_log`: value and time are the event's."""
        event = self.event
        return OwedEvent(
            webhook_id, self.event_id, self.event_type, event.timestamp_ms, event.value
        )


class _Sent(NamedTuple):
    """Owed events on their way into the log."""

    owed: list[OwedEvent]
    publication: Publication


class Matcher:
    """Finds for every event the webhooks that want it, and logs it for each of them."""

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
        self._here = ("", origin)
        self._avro = None if decoder is None else AvroEvents(decoder, metrics, self._pass_over)
        self._reports = reports
        self._shares: dict[int, _Share] = {}
        self._reads: asyncio.Queue[_Read] = asyncio.Queue()
        self._held: set[int] = set()
        self.under_way = 0
        """Records that are read and not acknowledged."""

    async def run(self, reader: GroupReader) -> None:
        """Match what comes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(commit_regularly(reader, self._shares, self._reports, COMMIT_S))
            while True:
                self._hold_or_release(reader)
                read = await self._reads.get()
                if self._avro is not None:
                    events = await self._avro.read(read.events, read.read_s)
                    read = read._replace(events=events)
                sent, unwanted = await self._send_wanted(read)
                group.create_task(self._finish(read, sent, unwanted, reader))

    async def begin(self, positions: Mapping[int, Position]) -> dict[int, int]:
        """Go on where the group stands; a new group begins with the first event there is."""
        return {partition: self._begin(partition, *each) for partition, each in positions.items()}

    def _begin(self, partition: int, committed: Committed | None, bounds: Bounds) -> int:
        start = bounds.low if committed is None else max(committed.position, bounds.low)
        self._shares[partition] = _Share(start, Committed(start, ""))
        return start

    def take(self, events: Mapping[int, Sequence[LoggedEvent]]) -> None:
        """Queue records to be matched."""
        pieces = []
        for partition, some in events.items():
            pieces.append(_Piece(some[-1].offset + 1))
            if share := self._shares.get(partition):
                share.pieces.append(pieces[-1])
                self._note_received(some)
        count = sum(map(len, events.values()))
        self.under_way += count
        self._reads.put_nowait(_Read(events, pieces, count, time.monotonic()))

    async def let_go(self, partitions: Sequence[int]) -> dict[int, Committed]:
        """Wait for what is under way, within bounds; how far the partitions are."""
        shares = {each: self._shares[each] for each in partitions if each in self._shares}
        deadline = time.monotonic() + _LET_GO_S
        while not all(share.is_idle for share in shares.values()):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_LOOK_S)
        self.lose(partitions)
        if self._reports is not None:
            await self._reports.report_before_release()
        return {each: share.reached() for each, share in shares.items()}

    def lose(self, partitions: Sequence[int]) -> None:
        """Commit nothing more of these partitions."""
        for partition in partitions:
            self._shares.pop(partition, None)
            self._held.discard(partition)

    def _note_received(self, events: Sequence[LoggedEvent]) -> None:
        if self._reports is not None:
            for event in events:
                self._reports.count_event(event)

    async def _send_wanted(self, read: _Read) -> tuple[list[_Sent], list[_Named]]:
        """Hand over what somebody wants; beside it, what nobody seems to."""
        sent: list[_Sent] = []
        unwanted: list[_Named] = []
        owed: list[OwedEvent] = []
        matched = 0
        for number, named in enumerate(self._named(read.events)):
            webhook_ids = self._table.wanting(named.event_type, named.event.value)
            if not webhook_ids:
                unwanted.append(named)
                continue
            matched += 1
            owed.extend(map(named.owed_to, webhook_ids))
            if len(owed) >= OWED_MAX:
                sent.append(await self._send(owed))
                owed = []
            if number % _TURN_RECORDS == _TURN_RECORDS - 1:
                await asyncio.sleep(0)
        if owed:
            sent.append(await self._send(owed))
        self._metrics.count_checked("matched", matched)
        return sent, unwanted

    def _named(self, events: Mapping[int, Sequence[LoggedEvent]]) -> Iterator[_Named]:
        """The events that rules can judge; others are counted and passed over."""
        for partition, some in events.items():
            for event in some:
                if event.origin not in self._here:
                    # A mirror brought it; where it was made it is matched as well.
                    self._metrics.count_checked("mirrored", 1)
                    continue
                named = _name(event, partition)
                if named is None:
                    place = place_name(EVENTS, partition, event.offset)
                    self._pass_over(place, "no type, no value, a time before 1970, or too large")
                else:
                    yield named

    def _pass_over(self, place: str, reason: str) -> None:
        self._metrics.count_checked("malformed", 1)
        _log.warning("event-malformed", extra={"place": place, "reason": reason})

    async def _finish(
        self, read: _Read, sent: list[_Sent], unwanted: list[_Named], reader: GroupReader
    ) -> None:
        for each in sent:
            await self._see_through(each)
        if unwanted:
            await self._look_again(unwanted)
        for piece in read.pieces:
            piece.is_done = True
        self.under_way -= read.records
        self._hold_or_release(reader)

    async def _look_again(self, unwanted: list[_Named]) -> None:
        """Send what a fresh copy of the rules says is wanted after all."""
        await self._table.refreshed()
        matched = 0
        for named in unwanted:
            webhook_ids = self._table.wanting(named.event_type, named.event.value)
            if webhook_ids:
                matched += 1
                await self._see_through(await self._send(list(map(named.owed_to, webhook_ids))))
        self._metrics.count_checked("matched", matched)
        self._metrics.count_checked("unmatched", len(unwanted) - matched)

    async def _send(self, owed: list[OwedEvent]) -> _Sent:
        return _Sent(owed, await self._publisher.begin(DELIVERY_LOG, owed))

    async def _see_through(self, sent: _Sent) -> None:
        """Return once the log has all of it for good, however long that takes."""
        while True:
            try:
                arrivals = await sent.publication.all_settled()
            except LogError as error:
                _log.warning("not-logged-yet", extra={"reason": str(error)})
                await asyncio.sleep(_RETRY_S)
                # Those that did arrive come twice; whoever delivers them knows them by id and body.
                sent = await self._send(sent.owed)
            else:
                break
        self._metrics.owed.inc(len(sent.owed))
        await self._late.note(arrivals)

    def _hold_or_release(self, reader: GroupReader) -> None:
        """Read no further while too much is under way."""
        if self.under_way >= UNDER_WAY_MAX:
            for partition in self._shares.keys() - self._held:
                self._held.add(partition)
                reader.hold(partition)
        elif self.under_way <= UNDER_WAY_MAX // 2:
            while self._held:
                reader.release(self._held.pop())


def _name(event: LoggedEvent, partition: int) -> _Named | None:
    """The event with its id and type; None when no rule could judge it, or nobody be sent it.

    They are the record's headers; a producer that sets none may have them in the JSON object, as
    `id` and `type`. An event without an id is named by its place.
    """
    if not event.value or event.timestamp_ms < 0:
        return None
    event_id, event_type = event.event_id, event.event_type
    if not (event_id and event_type):
        members = _members(event.value)
        event_id = event_id or _text(members.get("id"))
        event_type = event_type or _text(members.get("type"))
    if not is_presentable(event_id):
        event_id = place_name(EVENTS, partition, event.offset)
    if not 1 <= len(event_type) <= TYPE_CHARS_MAX:
        return None
    if len(event.value) + len(event_id) > EVENT_BYTES_MAX:
        return None
    return _Named(event_id, event_type, event)


def _members(value: bytes) -> dict[str, Any]:
    try:
        members = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def _text(member: object) -> str:
    # Half a surrogate pair is a text in JSON, and none that could be written anywhere.
    return member if isinstance(member, str) and member.isprintable() else ""
