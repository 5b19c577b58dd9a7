"""Reads deliveries for the API and the console."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, NamedTuple

from app.config import Settings
from app.domain.deliveries import (
    STATUS_OF_OUTCOME,
    AttemptRecord,
    DeliveryPlace,
    DeliveryStatus,
)
from app.domain.delivery import LiveOutcome
from app.domain.model import OffsetRange
from app.log.browser.partition_scan import RangeRequest, RawRecord
from app.log.browser.record_reader import RecordReader
from app.log.delivered import outcome_disorder_ms
from app.log.deliveries.delivery import (
    UNKNOWN_REASON,
    DeliveryDetail,
    DeliveryPage,
    DeliverySummary,
    of_record,
    text_of,
)
from app.log.deliveries.lookup import DeliveryLookup, FoundAttempts
from app.log.deliveries.page import BackwardRecords, PageBudget, PageReading, cursor_text
from app.log.deliveries.query import DeliveryQuery, parse_delivery_cursor
from app.log.deliveries.reader_pool import ReaderPool
from app.log.deliveries.unsettled import UnsettledReader, UnsettledRecords
from app.log.errors import (
    InspectionsBusy,
    LogUnavailable,
    NotInLog,
    TopicMissing,
    WindowNotRetained,
)
from app.log.history import LogHistory
from app.log.inspection.deadline import Deadline
from app.log.outcomes import DeliveryOutcome
from app.log.topics import DELIVERY_ATTEMPTS, DELIVERY_LOG, DELIVERY_OUTCOMES

TIME_S_MAX: Final = 4.0
AT_A_TIME: Final = 8

_RECENT_OUTCOMES: Final = 1_000
"""Outcomes that may be missing in the committed position, which is a quarter of a second old."""

_EVENT_BYTES_MAX: Final = 16 * 2**20


class DeliveryReader:
    """Reads deliveries of this data centre. Thread-safe; blocks for about `TIME_S_MAX` at most.

    `history` looks up offsets of `delivery_log`, and `outcomes` those of `delivery_outcomes`.
    """

    def __init__(self, settings: Settings, history: LogHistory, outcomes: LogHistory) -> None:
        self._settings = settings
        self._history = history
        self._outcomes = outcomes
        self._attempts = LogHistory(
            settings.bootstrap_servers,
            properties=settings.kafka_properties,
            topic=DELIVERY_ATTEMPTS,
        )
        self._unsettled = UnsettledReader(settings, TIME_S_MAX)
        self._pools = {
            topic: ReaderPool(settings, topic)
            for topic in (DELIVERY_LOG, DELIVERY_OUTCOMES, DELIVERY_ATTEMPTS)
        }
        self._slots = threading.BoundedSemaphore(AT_A_TIME)

    def close(self) -> None:
        """Close all clients."""
        self._unsettled.close()
        for pool in self._pools.values():
            pool.close()

    def page(self, query: DeliveryQuery) -> DeliveryPage:
        """Return a page of deliveries.

        Raises:
            BrowseRefused: the cursor is invalid.
            WindowNotRetained: the log no longer has the window.
            InspectionsBusy: `AT_A_TIME` requests are being answered.
            LogUnavailable: the log does not answer.
        """
        with self._slot():
            return self._retained_page(query, PageBudget.of(Deadline(TIME_S_MAX)))

    def pages(self, queries: Sequence[DeliveryQuery]) -> tuple[DeliveryPage, ...]:
        """Return a page of each query; together they read as much as one page may.

        Raises:
            The errors of `page`, of any of them.
        """
        budget, parts = PageBudget.of(Deadline(TIME_S_MAX)), len(queries)
        with self._slot():
            return tuple(
                self._retained_page(query, budget.of_part(number, parts))
                for number, query in enumerate(queries)
            )

    def partitions_for(self, webhook_id: str) -> tuple[int, int]:
        """The partitions with the events of a webhook, and with their outcomes.

        Raises:
            LogUnavailable: the log does not answer, or a topic does not exist.
        """
        return self._history.partition_for(webhook_id), self._outcomes.partition_for(webhook_id)

    def delivery(self, place: DeliveryPlace) -> DeliveryDetail:
        """Return a delivery by its place.

        Raises:
            NotInLog: the record does not exist, or was deleted.
            InspectionsBusy: `AT_A_TIME` requests are being answered.
            LogUnavailable: the log does not answer.
        """
        with self._slot():
            return self._delivery(place, Deadline(TIME_S_MAX))

    def event(self, place: DeliveryPlace) -> tuple[DeliverySummary, bytes]:
        """Return a delivery without its status, and the body of its event.

        Raises:
            NotInLog, LogUnavailable: see `delivery`.
        """
        with self._pools[DELIVERY_LOG].reader() as reader:
            record = self._record(reader, place, Deadline(TIME_S_MAX))
        return of_record(record, place.origin, None), record.value or b""

    def _slot(self) -> ExitStack:
        if not self._slots.acquire(blocking=False):
            raise InspectionsBusy("limit of concurrent look-ups of deliveries reached; retry later")
        stack = ExitStack()
        stack.callback(self._slots.release)
        return stack

    def _retained_page(self, query: DeliveryQuery, budget: PageBudget) -> DeliveryPage:
        try:
            return self._page(query, budget)
        except WindowNotRetained as refusal:
            if not query.may_clip:
                raise
            window = replace(query.window, from_ms=refusal.available_from_ms)
            return self._page(replace(query, window=window), budget)

    def _page(self, query: DeliveryQuery, budget: PageBudget) -> DeliveryPage:
        cursor = None if query.cursor is None else parse_delivery_cursor(query.cursor)
        has_pending = query.status in (None, DeliveryStatus.PENDING)
        pending = None
        if has_pending and (cursor is None or cursor.pending_end is not None):
            # Read before the outcomes: what is settled meanwhile is seen at least once.
            pending = self._pending(query, None if cursor is None else cursor.pending_end)
        outcomes = self._outcome_range(query)
        if cursor is not None:
            outcomes = replace(outcomes, end=min(outcomes.end, cursor.outcomes_end))
        reading = PageReading(query, self._settings.origin)
        pending_end, outcomes_end, is_partial = None, None, False
        with self._pools[DELIVERY_OUTCOMES].reader() as reader:
            if pending is not None:
                records = self._backward(query, reader, outcomes.partition, budget)
                settled = reading.settled_among(records.below(*pending.recent_outcomes))
                pending_end, is_partial = self._add_pending(
                    query, pending, settled, reading, budget
                )
            has_outcomes = outcomes.end > outcomes.start
            if query.status is DeliveryStatus.PENDING:
                has_outcomes = False
            if has_outcomes and (pending_end is not None or reading.is_full):
                outcomes_end = outcomes.end
            elif has_outcomes:
                records = self._backward(query, reader, outcomes.partition, budget)
                outcomes_end = reading.add_settled(outcomes, records)
                is_partial = records.is_partial
            skipped = tuple(reader.damaged.values())
        return DeliveryPage(
            tuple(reading.items),
            cursor_text(pending_end, outcomes_end),
            is_partial,
            query.window.from_ms,
            skipped,
            tuple(reading.offsets),
        )

    def _backward(
        self, query: DeliveryQuery, reader: RecordReader, partition: int, budget: PageBudget
    ) -> BackwardRecords:
        return BackwardRecords(reader, partition, query.keys, budget, 2 * query.limit)

    def _outcome_range(self, query: DeliveryQuery) -> OffsetRange:
        """The offsets of the outcomes of a window.

        Raises:
            WindowNotRetained, LogUnavailable: see `LogHistory.offsets_for`.
        """
        behind_ms = outcome_disorder_ms(self._settings, query.window, query.late_until_ms)
        return self._outcomes.offsets_for(query.webhook_ids[0], query.window, behind_ms)

    def _pending(self, query: DeliveryQuery, end: int | None) -> "_Pending | None":
        """The unsettled records of the partition of a query; None if there are none."""
        partition = self._history.partition_for(query.webhook_ids[0])
        unsettled = self._unsettled.unsettled(partition).with_further(
            each.offset
            for each in query.retries
            if query.is_waiting(each)
            and (each.origin, each.partition) == (self._settings.origin, partition)
        )
        end = unsettled.end if end is None else min(end, unsettled.end)
        if not unsettled.ranges_below(end):
            return None
        partition = self._outcomes.partition_for(query.webhook_ids[0])
        bounds = self._outcomes.bounds(DELIVERY_OUTCOMES, partition)
        recent = (bounds.high, max(bounds.low, bounds.high - _RECENT_OUTCOMES))
        return _Pending(unsettled, end, recent)

    def _add_pending(
        self,
        query: DeliveryQuery,
        pending: "_Pending",
        settled: set[tuple[int, int]],
        reading: PageReading,
        budget: PageBudget,
    ) -> tuple[int | None, bool]:
        """Add pending deliveries; return where to continue, and whether the budget is used up."""
        with self._pools[DELIVERY_LOG].reader() as reader:
            records = self._backward(query, reader, pending.unsettled.partition, budget)
            end = reading.add_pending(pending.unsettled, records, pending.end, settled)
            return end, records.is_partial

    def _delivery(self, place: DeliveryPlace, deadline: Deadline) -> DeliveryDetail:
        with self._pools[DELIVERY_LOG].reader() as reader:
            record = self._record(reader, place, deadline)
        is_unsettled = place.offset in self._unsettled.unsettled(place.partition)
        found = self._outcome(place, record, deadline, is_recent=is_unsettled)
        attempts = FoundAttempts()
        if found is None or _has_failed(found[0]):
            attempts = self._failed_attempts(place, record, deadline)
        if attempts.outcome is not None:
            found = attempts.outcome, attempts.server
        summary = of_record(
            record,
            place.origin,
            DeliveryStatus.PENDING if is_unsettled else None,
            None if is_unsettled else UNKNOWN_REASON,
        )
        if found is None:
            summary = replace(summary, next_attempt_ms=attempts.next_ms)
        records = attempts.attempts
        if found is not None:
            summary = _settled(summary, found[0])
            records = _with_last(records, *found)
        else:
            summary = replace(summary, attempts=len(records))
        return DeliveryDetail(
            summary,
            record.value or b"",
            record.headers or (),
            records,
        )

    def _record(self, reader: RecordReader, place: DeliveryPlace, deadline: Deadline) -> RawRecord:
        missing = NotInLog("delivery not found; the log may have deleted it")
        if place.origin != self._settings.origin:
            raise missing
        if place.partition >= self._history.partition_count():
            raise missing
        bounds = self._history.bounds(DELIVERY_LOG, place.partition)
        if not bounds.low <= place.offset < bounds.high:
            raise missing
        request = RangeRequest(place.offset, place.offset + 1, 1)
        result = reader.read({place.partition: request}, deadline, _EVENT_BYTES_MAX)
        if problem := reader.problems.get(place.partition):
            raise LogUnavailable(problem)
        records = result[place.partition].records
        if not records:
            if result[place.partition].position <= place.offset:
                raise LogUnavailable("the log did not answer in time")
            raise missing
        return records[0]

    def _outcome(
        self, place: DeliveryPlace, record: RawRecord, deadline: Deadline, *, is_recent: bool
    ) -> tuple[DeliveryOutcome, str] | None:
        """The outcome of a delivery; with `is_recent` only if it is one of the last ones."""
        try:
            partition, start = self._outcomes.end_before(text_of(record.key), _time_ms(record))
            bounds = self._outcomes.bounds(DELIVERY_OUTCOMES, partition)
        except TopicMissing:
            return None
        if is_recent or start >= bounds.high:
            # Those of older events may be at the end, too.
            start = max(bounds.low, bounds.high - _RECENT_OUTCOMES)
        with self._pools[DELIVERY_OUTCOMES].reader() as reader:
            lookup = DeliveryLookup(reader, partition, record.key or b"", place, deadline)
            return lookup.find_outcome(start, bounds.high)

    def _failed_attempts(
        self, place: DeliveryPlace, record: RawRecord, deadline: Deadline
    ) -> FoundAttempts:
        try:
            partition, start = self._attempts.end_before(text_of(record.key), _time_ms(record))
            bounds = self._attempts.bounds(DELIVERY_ATTEMPTS, partition)
        except TopicMissing:
            return FoundAttempts()
        with self._pools[DELIVERY_ATTEMPTS].reader() as reader:
            lookup = DeliveryLookup(reader, partition, record.key or b"", place, deadline)
            return lookup.find_attempts(start, bounds.high)


class _Pending(NamedTuple):
    """Unsettled records below `end`, and the range of outcomes, end first, that may be of them."""

    unsettled: UnsettledRecords
    end: int
    recent_outcomes: tuple[int, int]


def _time_ms(record: RawRecord) -> int:
    return max(0, record.timestamp_ms or 0)


def _has_failed(outcome: DeliveryOutcome) -> bool:
    is_delivered = outcome.outcome is LiveOutcome.DELIVERED
    return outcome.attempts > 1 or (outcome.attempts == 1 and not is_delivered)


def _settled(summary: DeliverySummary, outcome: DeliveryOutcome) -> DeliverySummary:
    return replace(
        summary,
        status=STATUS_OF_OUTCOME[outcome.outcome],
        attempts=outcome.attempts,
        response_status=outcome.status,
        reason=outcome.reason,
        settled_ms=outcome.time_ms,
        duration_ms=outcome.duration_ms,
    )


def _with_last(
    attempts: tuple[AttemptRecord, ...], outcome: DeliveryOutcome, server: str
) -> tuple[AttemptRecord, ...]:
    """The attempts with the last one, which the outcome describes, unless it is one of them."""
    if not outcome.attempts or any(each.number == outcome.attempts for each in attempts):
        return attempts
    last = AttemptRecord(
        number=outcome.attempts,
        time_ms=outcome.time_ms,
        duration_ms=outcome.duration_ms,
        status=outcome.status,
        reason=outcome.reason,
        server=server,
    )
    return (*attempts, last)
