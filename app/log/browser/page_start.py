"""Where a page and its neighbours start in the partitions of a topic."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.log.browser.partition_scan import BackwardScan, ForwardScan, PartitionScan
from app.log.browser.query import PARTITIONS_MAX, BrowseQuery, Cursor, MessageOrder, parse_cursor
from app.log.errors import BrowseRefused
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import Gaps
from app.log.inspection.requests import InspectionRequests, positions_of
from logbroker.client.admin import EARLIEST, LATEST, TopicAndPartition, since
from logbroker.client.log_bounds import Bounds

MESSAGES: Final = "messages"

_AT_ONCE_LEAST: Final = 8
"""Records of each of several partitions in the first read."""


@dataclass(frozen=True, slots=True)
class PageStart:
    """A page starts at `offsets` and goes forward, or below them and goes backward, in `bounds`.

    `unavailable` has the offsets of a cursor in partitions that cannot be read at present; the
    cursors of the page keep them.
    """

    order: MessageOrder
    is_forward: bool
    bounds: Mapping[int, Bounds]
    offsets: Mapping[int, int]
    unavailable: Mapping[int, int]

    @property
    def is_reversed(self) -> bool:
        """Whether to show the last record first, because the page goes back in the order."""
        return self.is_forward != (self.order is MessageOrder.OLDEST)

    def scans(self, limit: int) -> dict[int, PartitionScan]:
        """Return the scans of the page, by partition."""
        at_once = max(_AT_ONCE_LEAST, -(-limit // max(1, len(self.offsets))))
        return {
            partition: ForwardScan(offset, self.bounds[partition].high, at_once)
            if self.is_forward
            else BackwardScan(self.bounds[partition].low, offset, at_once)
            for partition, offset in self.offsets.items()
        }

    def cursors(self, scans: Mapping[int, PartitionScan]) -> tuple[str | None, str | None]:
        """Return the cursors of the next and the previous page, after the scans."""
        positions = {partition: scan.position for partition, scan in scans.items()}
        is_more = any(not scan.is_done for scan in scans.values()) or bool(self.unavailable)
        onward = self._cursor(positions, is_forward=self.is_forward) if is_more else None
        is_more = any(
            offset > self.bounds[partition].low
            if self.is_forward
            else offset < self.bounds[partition].high
            for partition, offset in self.offsets.items()
        )
        back = self._cursor(self.offsets, is_forward=not self.is_forward) if is_more else None
        return (back, onward) if self.is_reversed else (onward, back)

    def _cursor(self, offsets: Mapping[int, int], *, is_forward: bool) -> str:
        return Cursor(self.order, is_forward, {**self.unavailable, **offsets}).text


def find_page_start(
    requests: InspectionRequests, query: BrowseQuery, deadline: Deadline, gaps: Gaps
) -> PageStart:
    """Find where the page of a query starts.

    Raises:
        BrowseRefused: the topic lacks the partition, or the partition the offset.
        NotInLog, LogUnavailable
    """
    topic = requests.topic(query.topic, deadline)
    if topic.error is not None:
        gaps.add(MESSAGES, topic.error.str())
    cursor = None if query.cursor is None else parse_cursor(query.cursor)
    numbers = _partitions(query, cursor, sorted(topic.partitions))
    led = [(query.topic, each) for each in numbers if topic.partitions[each].leader >= 0]
    for number in numbers:
        if topic.partitions[number].leader < 0:
            gaps.add(MESSAGES, f"partition {number} has no leader")
    bounds = _bounds(requests, led, deadline, gaps)
    wanted = _start_offsets(requests, query, cursor, bounds, deadline, gaps)
    return PageStart(
        order=query.order if cursor is None else cursor.order,
        is_forward=query.order is MessageOrder.OLDEST if cursor is None else cursor.is_forward,
        bounds=bounds,
        # Offsets of a cursor may be deleted by now, or of a recreated topic.
        offsets={
            number: min(max(wanted[number], low), high) for number, (low, high) in bounds.items()
        },
        unavailable={
            number: offset
            for number, offset in (() if cursor is None else cursor.offsets.items())
            if number not in bounds
        },
    )


def _partitions(query: BrowseQuery, cursor: Cursor | None, there: list[int]) -> list[int]:
    known = f"0 to {len(there) - 1}, the partitions of topic {query.topic!r}"
    if cursor is not None:
        unknown = sorted(cursor.offsets.keys() - set(there))
        if unknown:
            raise BrowseRefused("cursor", query.cursor, f"one with partitions {known}")
        return sorted(cursor.offsets)
    if query.partition is None:
        if len(there) > PARTITIONS_MAX:
            allowed = f"one of {known}: up to {PARTITIONS_MAX} are read together"
            raise BrowseRefused("partition", None, allowed)
        return there
    if query.partition not in there:
        raise BrowseRefused("partition", query.partition, known)
    return [query.partition]


def _bounds(
    requests: InspectionRequests, led: list[TopicAndPartition], deadline: Deadline, gaps: Gaps
) -> dict[int, Bounds]:
    lows = requests.offsets(led, EARLIEST, deadline)
    highs = requests.offsets(led, LATEST, deadline, is_committed=True)
    low_of, high_of = (positions_of(each, MESSAGES, deadline, gaps) for each in (lows, highs))
    return {
        tp[1]: Bounds(low_of[tp].offset, max(low_of[tp].offset, high_of[tp].offset))
        for tp in led
        if tp in low_of and tp in high_of
    }


def _start_offsets(
    requests: InspectionRequests,
    query: BrowseQuery,
    cursor: Cursor | None,
    bounds: Mapping[int, Bounds],
    deadline: Deadline,
    gaps: Gaps,
) -> Mapping[int, int]:
    """Return the start offset of each partition; it may be out of bounds."""
    if cursor is not None:
        return cursor.offsets
    if query.offset is not None:
        for number, held in bounds.items():
            _check_offset(number, query.offset, held)
        # A backward page starts with this message.
        first = query.offset + (query.order is MessageOrder.NEWEST)
        return dict.fromkeys(bounds, first)
    if query.time_ms is not None:
        topic_partitions = [(query.topic, number) for number in bounds]
        spec = since(max(0, query.time_ms))
        at = positions_of(
            requests.offsets(topic_partitions, spec, deadline), MESSAGES, deadline, gaps
        )
        # Without such a record, and without an answer, for which there is a gap: the end.
        return {
            number: at[query.topic, number].offset
            if (query.topic, number) in at and at[query.topic, number].offset >= 0
            else held.high
            for number, held in bounds.items()
        }
    is_oldest = query.order is MessageOrder.OLDEST
    return {number: held.low if is_oldest else held.high for number, held in bounds.items()}


def _check_offset(partition: int, offset: int, held: Bounds) -> None:
    if held.low <= offset < held.high:
        return
    if held.low == held.high:
        allowed = f"none: partition {partition} is empty, its end is {held.high}"
    else:
        allowed = f"{held.low} to {held.high - 1}, the offsets of partition {partition}"
    raise BrowseRefused("offset", offset, allowed)
