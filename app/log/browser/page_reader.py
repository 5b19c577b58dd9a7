"""Reads the records of a page from several partitions, merged by their times."""

from collections.abc import Mapping
from typing import Final

from app.log.browser.page_start import MESSAGES
from app.log.browser.partition_scan import PartitionScan, RawRecord
from app.log.browser.record_reader import RecordReader
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import Gaps

READ_BYTES_MAX: Final = 8 * 2**20
"""The limit of one read; a range that does not fit is read again."""

_NO_TIME: Final = -1


class PageReader:
    """Reads the records of one page, within limits of time and bytes."""

    def __init__(
        self,
        reader: RecordReader,
        scans: Mapping[int, PartitionScan],
        *,
        is_forward: bool,
        deadline: Deadline,
        bytes_max: int,
    ) -> None:
        self._reader = reader
        self._scans = scans
        self._is_forward = is_forward
        self._deadline = deadline
        self._bytes_max = bytes_max
        self._skipped: set[int] = set()
        self._is_limited = False

    def records(self, limit: int, gaps: Gaps) -> list[RawRecord]:
        """Return up to `limit` records in the direction of the scans; gaps say what is missing."""
        taken: list[RawRecord] = []
        while len(taken) < limit:
            waiting = self._waiting_scans()
            if not waiting:
                record = self._pop_first()
                if record is None:
                    break
                taken.append(record)
            elif self._may_read(waiting, is_empty=not taken):
                self._read(waiting)
            else:
                why = "time" if self._deadline.is_over else f"{self._bytes_max} bytes"
                numbers = ", ".join(map(str, sorted(waiting)))
                gaps.add(MESSAGES, f"not read within the {why} of a page: partition {numbers}")
                self._skipped |= waiting.keys()
        for partition, reason in (*self._reader.problems.items(), *self._reader.damaged.items()):
            gaps.add(MESSAGES, f"partition {partition}: {reason}")
        return taken

    def _waiting_scans(self) -> dict[int, PartitionScan]:
        return {
            partition: scan
            for partition, scan in self._scans.items()
            if scan.needs_read and partition not in self._skipped
        }

    def _may_read(self, waiting: Mapping[int, PartitionScan], *, is_empty: bool) -> bool:
        if self._deadline.is_over:
            return False
        if self._reader.bytes_read < self._bytes_max:
            return True
        has_heads = any(scan.head is not None for scan in self._scans.values())
        if not is_empty or has_heads or self._is_limited:
            return False
        # A page needs a message to have cursors, so one message may exceed the limit.
        self._is_limited = True
        for scan in waiting.values():
            scan.limit_to_one()
        return True

    def _read(self, waiting: Mapping[int, PartitionScan]) -> None:
        requests = {partition: scan.next_request() for partition, scan in waiting.items()}
        for partition, result in self._reader.read(
            requests, self._deadline, READ_BYTES_MAX
        ).items():
            waiting[partition].add_result(requests[partition], result)
        self._skipped |= self._reader.problems.keys()

    def _pop_first(self) -> RawRecord | None:
        """Remove and return the first head by time; each partition keeps its order."""
        scans = [scan for scan in self._scans.values() if scan.head is not None]
        if not scans:
            return None
        return (min if self._is_forward else max)(scans, key=_time_and_partition).pop()


def _time_and_partition(scan: PartitionScan) -> tuple[int, int]:
    head = scan.head
    assert head is not None
    time_ms = head.timestamp_ms
    return _NO_TIME if time_ms is None else time_ms, head.partition
