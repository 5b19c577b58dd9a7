"""Reads one page of deliveries, within limits of records and time."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.model import OffsetRange
from app.domain.type_filter import TypeFilter
from app.log.browser.partition_scan import RangeRequest, RawRecord
from app.log.browser.record_reader import RecordReader
from app.log.deliveries.delivery import DeliverySummary, headers_of, of_outcome, of_record
from app.log.deliveries.query import DeliveryCursor, DeliveryQuery
from app.log.deliveries.unsettled import UnsettledRecords
from app.log.errors import LogUnavailable
from app.log.event import header_text
from app.log.inspection.deadline import Deadline
from app.log.outcomes import OutcomeRetries, decode_outcome

RECORDS_MAX: Final = 20_000
"""Records that are read for one page, those of other webhooks in the partition included."""

READS_MAX: Final = 50
"""Ranges that are read for one page: pending deliveries may lie far apart."""

BYTES_MAX: Final = 16 * 2**20

READS_MIN: Final = 8
"""Reads of a part of a page: enough to find how many large records one read can return."""

_RANGE_MAX: Final = 4_000


class PageBudget(NamedTuple):
    """What may be read of a topic for a page, or for one of the parts that it is merged from.

    The log has to answer before `deadline`; no read begins after `turn`.
    """

    records: int
    reads: int
    byte_count: int
    deadline: Deadline
    turn: Deadline

    @classmethod
    def of(cls, deadline: Deadline) -> Self:
        """The budget of a whole page."""
        return cls(RECORDS_MAX, READS_MAX, BYTES_MAX, deadline, deadline)

    def of_part(self, number: int, parts: int) -> Self:
        """The budget of the part `number`, from 0, of equal ones that are read one by one."""
        return self._replace(
            records=self.records // parts,
            reads=max(min(READS_MIN, self.reads), self.reads // parts),
            byte_count=self.byte_count // parts,
            turn=Deadline(self.deadline.left_s / (parts - number)),
        )


class BackwardRecords:
    """Records of one partition with some keys, latest first, within the budget of a page.

    `end` is the offset below which nothing was returned: where to continue.
    """

    def __init__(
        self,
        reader: RecordReader,
        partition: int,
        keys: frozenset[bytes],
        budget: PageBudget,
        at_once: int,
    ) -> None:
        self._reader = reader
        self._partition = partition
        self._keys = keys
        self._budget = budget
        self._at_once = at_once
        self.end = 0
        self.is_partial = False
        self._records_left = budget.records
        self._reads_left = budget.reads

    def below(self, end: int, start: int) -> Iterator[RawRecord]:
        """Yield the records of `[start, end)`; sets `is_partial` if the budget is used up.

        Raises:
            LogUnavailable: the log does not answer in time.
        """
        self.end = end
        width = self._at_once
        while self.end > start and not self.is_partial:
            if not self._may_read():
                self.is_partial = True
                return
            first = max(start, self.end - width)
            records = self._read(first, self.end)
            if records is None:
                width = max(1, width // 4)
                continue
            for record in reversed(records):
                if record.key in self._keys:
                    self.end = record.offset
                    yield record
            self.end = first
            width = min(_RANGE_MAX, width * 4)

    def _may_read(self) -> bool:
        return (
            self._records_left > 0
            and self._reads_left > 0
            and self._reader.bytes_read < self._budget.byte_count
            and not self._budget.turn.is_over
        )

    def _read(self, start: int, end: int) -> list[RawRecord] | None:
        """The records of a range; None if it has too many bytes."""
        request = RangeRequest(start, end, end - start)
        deadline, bytes_max = self._budget.deadline, self._budget.byte_count // 2
        result = self._reader.read({self._partition: request}, deadline, bytes_max)
        result_of = result[self._partition]
        self._reads_left -= 1
        self._records_left -= len(result_of.records)
        if problem := self._reader.problems.get(self._partition):
            raise LogUnavailable(problem)
        if result_of.position >= end:
            return list(result_of.records)
        if deadline.is_over and not result_of.records:
            raise LogUnavailable("the log did not answer in time")
        if end - start == 1:
            # One record may exceed the limit; without one, the offset was deleted or compacted.
            return list(result_of.records)
        return None


class PageReading:
    """Collects the deliveries of one page."""

    def __init__(self, query: DeliveryQuery, origin: str) -> None:
        self._query = query
        self._origin = origin
        self._types = TypeFilter(() if query.event_type is None else (query.event_type,))
        self._taken: set[tuple[int, int]] = set()
        self.items: list[DeliverySummary] = []
        self.offsets: list[int] = []
        """Of each item, the offset of the record that it was read from."""

    @property
    def is_full(self) -> bool:
        """Whether it has as many deliveries as were requested."""
        return len(self.items) >= self._query.limit

    def settled_among(self, records: Iterator[RawRecord]) -> set[tuple[int, int]]:
        """The places whose outcomes these records are."""
        outcomes = (decode_outcome(record.value) for record in records)
        return {(each.partition, each.offset) for each in outcomes if each is not None}

    def add_pending(
        self,
        unsettled: UnsettledRecords,
        records: BackwardRecords,
        end: int,
        settled: set[tuple[int, int]],
    ) -> int | None:
        """Add pending deliveries below `end`; where to continue, None if there are no more."""
        for start, stop in unsettled.ranges_below(end):
            for record in records.below(stop, start):
                place = (record.partition, record.offset)
                is_waiting = self._query.is_waiting(DeliveryPlace(self._origin, *place))
                if record.offset not in unsettled or (place in settled and not is_waiting):
                    continue
                if self._is_requested(record):
                    self._taken.add(place)
                    delivery = of_record(record, self._origin, DeliveryStatus.PENDING)
                    self._append(self._with_retries(delivery), record)
                    if self.is_full:
                        return record.offset
            if records.is_partial:
                return records.end
        return None

    def add_settled(self, outcomes: OffsetRange, records: BackwardRecords) -> int | None:
        """Add deliveries by their outcomes; where to continue, None if there are no more."""
        for record in records.below(outcomes.end, outcomes.start):
            if not self._is_requested(record):
                continue
            outcome = decode_outcome(record.value)
            # Those of workers are in the database, too.
            if outcome is None or outcome.retries is OutcomeRetries.ENDED:
                continue
            delivery = self._with_retries(of_outcome(record, outcome, self._origin))
            if delivery.status is DeliveryStatus.PENDING:
                continue
            if delivery.place in self._query.resent:
                delivery = delivery.after_resend()
            place = (outcome.partition, outcome.offset)
            # The last outcome of a repeated one counts.
            is_new = place not in self._taken
            self._taken.add(place)
            if is_new and self._query.status in (None, delivery.status):
                self._append(delivery, record)
                if self.is_full:
                    return record.offset if record.offset > outcomes.start else None
        return records.end if records.is_partial else None

    def _append(self, delivery: DeliverySummary, record: RawRecord) -> None:
        self.items.append(delivery)
        self.offsets.append(record.offset)

    def _with_retries(self, delivery: DeliverySummary) -> DeliverySummary:
        progress = self._query.retries.get(delivery.place)
        return delivery if progress is None else delivery.with_retries(progress)

    def _is_requested(self, record: RawRecord) -> bool:
        window, time_ms = self._query.window, record.timestamp_ms
        if time_ms is None or not window.from_ms <= time_ms < window.to_ms:
            return False
        headers = headers_of(record)
        event_ids = self._query.event_ids
        if event_ids is not None and header_text(headers.get("event-id")) not in event_ids:
            return False
        if header_text(headers.get("origin")) not in ("", self._origin):
            # Another data centre delivers it, and lists it.
            return False
        return self._types.matches(header_text(headers.get("event-type")))


def cursor_text(pending_end: int | None, outcomes_end: int | None) -> str | None:
    """The cursor of the next page; None if there is none."""
    if pending_end is None and outcomes_end is None:
        return None
    return DeliveryCursor(pending_end, outcomes_end or 0).text
