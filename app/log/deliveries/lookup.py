"""Finds the outcome and the failed attempts of one delivery.

The outcomes of a partition are nearly in the order of the offsets that they name: they differ by
what is in flight. So an outcome is found by interpolation between these offsets, in a few reads,
however long the history is. A delivery with failed attempts has its outcome minutes or hours later,
and a copy of it next to its attempts in `delivery_attempts`, which has few records.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from app.domain.deliveries import AttemptRecord, DeliveryPlace
from app.log.attempts import FailedAttempt, decode_attempt
from app.log.browser.partition_scan import RangeRequest, RawRecord
from app.log.browser.record_reader import RecordReader
from app.log.deliveries.delivery import headers_of
from app.log.errors import LogUnavailable
from app.log.event import header_text
from app.log.inspection.deadline import Deadline
from app.log.outcomes import DeliveryOutcome, OutcomeRetries, decode_outcome

WINDOW_RECORDS: Final = 500
"""Records of one read; more than the live path has in flight for a partition as a rule."""

JUMPS_MAX: Final = 24
RECORDS_MAX: Final = 50_000
"""Records that are read in a row for one delivery."""

_RANGE_MAX: Final = 4_000
_BYTES_MAX: Final = 16 * 2**20
_SAMPLE: Final = 50
"""Records of a window whose offsets are compared; the largest of them is robust against those of
deliveries that were retried."""


class FoundAttempts(NamedTuple):
    """The failed attempts of a delivery, its outcome if it has one, and when a retry is due."""

    attempts: tuple[AttemptRecord, ...] = ()
    outcome: DeliveryOutcome | None = None
    server: str = ""
    next_ms: int | None = None


class DeliveryLookup:
    """Looks up one delivery in a partition of another topic than `delivery_log`."""

    def __init__(
        self,
        reader: RecordReader,
        partition: int,
        key: bytes,
        place: DeliveryPlace,
        deadline: Deadline,
    ) -> None:
        self._reader = reader
        self._partition = partition
        self._key = key
        self._place = place
        self._deadline = deadline

    def find_outcome(self, start: int, end: int) -> tuple[DeliveryOutcome, str] | None:
        """The live outcome in `[start, end)` and the process that wrote it; None without one.

        Raises:
            LogUnavailable: the log does not answer in time.
        """
        low, high, position = start, end, start
        for _ in range(JUMPS_MAX):
            if high - low <= WINDOW_RECORDS:
                break
            records, read_to = self._read(position, WINDOW_RECORDS)
            if found := self._outcome_among(records):
                return found
            newest = self._newest_offset(records)
            if newest is None or newest < self._place.offset:
                low = max(low, read_to)
                distance = 0 if newest is None else self._place.offset - newest
                position = max(low, min(low + distance - WINDOW_RECORDS // 2, high - 1))
            else:
                high = position
                back = max(WINDOW_RECORDS, newest - self._place.offset)
                position = max(low, position - back)
        return self._scan_for_outcome(low, end)

    def _scan_for_outcome(self, start: int, end: int) -> tuple[DeliveryOutcome, str] | None:
        position, stop = start, min(end, start + RECORDS_MAX)
        while position < stop and not self._deadline.is_over:
            records, position = self._read(position, min(_RANGE_MAX, stop - position))
            if found := self._outcome_among(records):
                return found
        return None

    def find_attempts(self, start: int, end: int) -> FoundAttempts:
        """The attempts in `[start, end)`.

        Raises:
            LogUnavailable: the log does not answer in time.
        """
        attempts: dict[tuple[int, int], tuple[FailedAttempt, str]] = {}
        outcome, server = None, ""
        position, stop = start, min(end, start + RECORDS_MAX)
        while position < stop and not self._deadline.is_over:
            records, position = self._read(position, min(_RANGE_MAX, stop - position))
            for record in records:
                if not self._may_be_of_delivery(record):
                    continue
                attempt = decode_attempt(record.value)
                if attempt is not None and self._is_of_delivery(attempt):
                    name = _server(record)
                    attempts[attempt.number, attempt.time_ms] = (attempt, name)
                elif found := self._outcome_among([record]):
                    # Of several outcomes, as after a crash, the last one counts.
                    outcome, server = found
        in_order = sorted(attempts.values(), key=lambda each: each[0].time_ms)
        next_ms = None if outcome is not None or not in_order else in_order[-1][0].next_ms
        return FoundAttempts(
            tuple(_attempt_record(*each) for each in in_order), outcome, server, next_ms
        )

    def _read(self, start: int, count: int) -> tuple[Sequence[RawRecord], int]:
        """The records from `start` on, and where to continue."""
        request = RangeRequest(start, start + count, count)
        result = self._reader.read({self._partition: request}, self._deadline, _BYTES_MAX)
        found = result[self._partition]
        if problem := self._reader.problems.get(self._partition):
            raise LogUnavailable(problem)
        if found.position == start:
            raise LogUnavailable("the log did not answer in time")
        return found.records, found.position

    def _outcome_among(self, records: Sequence[RawRecord]) -> tuple[DeliveryOutcome, str] | None:
        for record in records:
            if self._may_be_of_delivery(record):
                outcome = decode_outcome(record.value)
                is_live = outcome is not None and outcome.retries is not OutcomeRetries.ENDED
                if outcome is not None and is_live and self._is_of_delivery(outcome):
                    return outcome, _server(record)
        return None

    def _may_be_of_delivery(self, record: RawRecord) -> bool:
        if record.key != self._key or b'"offset":%d,' % self._place.offset not in (
            record.value or b""
        ):
            return False
        return header_text(headers_of(record).get("origin")) in ("", self._place.origin)

    def _is_of_delivery(self, found: DeliveryOutcome | FailedAttempt) -> bool:
        return (found.partition, found.offset) == (self._place.partition, self._place.offset)

    def _newest_offset(self, records: Sequence[RawRecord]) -> int | None:
        """The largest offset of `delivery_log` that the last of these outcomes name."""
        newest = None
        for record in records[-_SAMPLE:]:
            if header_text(headers_of(record).get("origin")) not in ("", self._place.origin):
                continue
            outcome = decode_outcome(record.value)
            if outcome is not None and outcome.partition == self._place.partition:
                newest = outcome.offset if newest is None else max(newest, outcome.offset)
        return newest


def _attempt_record(attempt: FailedAttempt, server: str) -> AttemptRecord:
    return AttemptRecord(
        number=attempt.number,
        time_ms=attempt.time_ms,
        duration_ms=attempt.duration_ms,
        status=attempt.status,
        reason=attempt.reason,
        response=attempt.response,
        server=server,
    )


def _server(record: RawRecord) -> str:
    return header_text(headers_of(record).get("server"))
