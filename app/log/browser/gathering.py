"""Takes the records of a page from several partitions, merged by their times."""

from collections.abc import Mapping
from typing import Final

from app.log.browser.entrance import MESSAGES
from app.log.browser.record_reader import RecordReader
from app.log.browser.walks import RawRecord, Walk
from app.log.inspection.deadline import Deadline
from app.log.inspection.gaps import Gaps

READ_BYTES_MAX: Final = 8 * 2**20
"""Of one read: those below the end of a span are dropped when its end is not reached."""

_NO_TIME: Final = -1


class Gathering:
    """The records of one page, as they come while there are time and bytes for them."""

    def __init__(
        self,
        reader: RecordReader,
        walks: Mapping[int, Walk],
        *,
        is_upward: bool,
        deadline: Deadline,
        bytes_max: int,
    ) -> None:
        self._reader = reader
        self._walks = walks
        self._is_upward = is_upward
        self._deadline = deadline
        self._bytes_max = bytes_max
        self._left_out: set[int] = set()
        self._is_humbled = False

    def records(self, limit: int, gaps: Gaps) -> list[RawRecord]:
        """Up to `limit` records in the direction of the walks; a gap says what is missing."""
        taken: list[RawRecord] = []
        while len(taken) < limit:
            lacking = self._lacking()
            if not lacking:
                record = self._take()
                if record is None:
                    break
                taken.append(record)
            elif self._may_read(lacking, is_empty=not taken):
                self._read(lacking)
            else:
                why = "time" if self._deadline.is_over else f"{self._bytes_max} bytes"
                numbers = ", ".join(map(str, sorted(lacking)))
                gaps.note(MESSAGES, f"not read within the {why} of a page: partition {numbers}")
                self._left_out |= lacking.keys()
        for partition, reason in (*self._reader.problems.items(), *self._reader.damaged.items()):
            gaps.note(MESSAGES, f"partition {partition}: {reason}")
        return taken

    def _lacking(self) -> dict[int, Walk]:
        return {
            partition: walk
            for partition, walk in self._walks.items()
            if walk.is_lacking and partition not in self._left_out
        }

    def _may_read(self, lacking: Mapping[int, Walk], *, is_empty: bool) -> bool:
        if self._deadline.is_over:
            return False
        if self._reader.bytes_read < self._bytes_max:
            return True
        has_heads = any(walk.head is not None for walk in self._walks.values())
        if not is_empty or has_heads or self._is_humbled:
            return False
        # A page without a message would lead nowhere: so one that is larger than all others.
        self._is_humbled = True
        for walk in lacking.values():
            walk.humble()
        return True

    def _read(self, lacking: Mapping[int, Walk]) -> None:
        probes = {partition: walk.probe() for partition, walk in lacking.items()}
        for partition, stretch in self._reader.read(probes, self._deadline, READ_BYTES_MAX).items():
            lacking[partition].learn(probes[partition], stretch)
        self._left_out |= self._reader.problems.keys()

    def _take(self) -> RawRecord | None:
        """The one of the heads that comes first by time, each partition in its own order."""
        walks = [walk for walk in self._walks.values() if walk.head is not None]
        if not walks:
            return None
        return (min if self._is_upward else max)(walks, key=_place_in_time).take()


def _place_in_time(walk: Walk) -> tuple[int, int]:
    head = walk.head
    assert head is not None
    time_ms = head.timestamp_ms
    return _NO_TIME if time_ms is None else time_ms, head.partition
