"""Which offsets of a topic the loads of a raw table contain, and which gaps affect a window.

A load contains all offsets between the previous position and its own, except those that its report
lists as missing. A gap is what the table lacks: before its first offset, in between, and after its
last.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from spark_jobs.jobs.load import KIND
from spark_jobs.jobs.load_position import read_position
from spark_jobs.tables import Commit, DataFile

DISORDER_MS: Final = 3_600_000
"""How much older a record may be than one before it in the log, if it is not late."""

OLDER_MIN: Final = 100
"""How many consecutive offsets must be older than the window: a few may be late records."""

GAPS_SHOWN_MAX: Final = 10
"""Maximum number of gaps in a text; a table may have hundreds after months of short retention."""


class Gap(NamedTuple):
    """The offsets `[start, end)` that a table lacks; an end of None is unlimited."""

    start: int
    end: int | None
    why: str


@dataclass
class Coverage:
    """The offsets of one partition that a table contains, and their approximate times."""

    topic_id: UUID | None
    begin: int
    end: int
    missing: list[Gap] = field(default_factory=list)
    _times: list[tuple[int, int]] = field(default_factory=list)
    """The lowest offset and the latest time in ms of each file."""

    def add_load(self, end: int, files: Iterable[DataFile]) -> None:
        """Add the files of a load up to offset `end`."""
        self.end = end
        for file in files:
            if file.offset_min is not None and file.time_max_ms is not None:
                self._times.append((file.offset_min, file.time_max_ms))

    def gaps_in_window(self, start_ms: int, below: int) -> list[Gap]:
        """The gaps below an offset that may have records of `start_ms` or later."""
        return [
            gap
            for gap in self._gaps()
            if gap.start < below and self._may_have(gap, start_ms, below)
        ]

    def _gaps(self) -> Iterator[Gap]:
        if self.begin > 0:
            yield Gap(0, self.begin, "before the first loaded offset")
        yield from self.missing
        yield Gap(self.end, None, "not loaded yet")

    def _may_have(self, gap: Gap, start_ms: int, below: int) -> bool:
        """Whether records in the gap may be as young as `start_ms`.

        They are not if the records after the gap are all older for a while. One old file does not
        suffice: late records are in the file of their own hour, often alone. From `below` on, the
        log was younger than the window, so older records there are late.
        """
        if gap.end is None:
            return True
        older_ms = start_ms - DISORDER_MS
        younger = (
            offset
            for offset, latest_ms in self._times
            if offset >= gap.end and latest_ms >= older_ms
        )
        return min(*younger, self.end, below) - gap.end < OLDER_MIN


def read_coverage(commits: Iterable[Commit], topic: str) -> dict[int, Coverage]:
    """The coverage of a topic by partition, from all commits of a table."""
    found: dict[int, Coverage] = {}
    for commit in commits:
        if commit.kind != KIND or topic not in (positions := read_position(commit.position)):
            continue
        now = positions[topic]
        lost = _missing(commit.report, topic)
        for partition, end in now.offsets.items():
            tp = (topic, partition)
            files = [each for each in commit.added if (each.topic, each.partition) == tp]
            known = found.get(partition)
            if known is None or known.topic_id != now.topic_id:
                known = _first(now.topic_id, end, files, is_recreated=known is not None)
                found[partition] = known
            known.missing += lost.get(partition, ())
            known.add_load(end, files)
    return found


def _first(
    topic_id: UUID | None, end: int, files: list[DataFile], *, is_recreated: bool
) -> Coverage:
    begin = min((each.offset_min for each in files if each.offset_min is not None), default=end)
    if not is_recreated:
        return Coverage(topic_id, begin, end)
    # Whether all of the former topic was loaded is unknown.
    return Coverage(topic_id, 0, end, [Gap(-1, begin, "the topic was recreated before them")])


def _missing(report: Mapping[str, Any], topic: str) -> dict[int, list[Gap]]:
    found: dict[int, list[Gap]] = {}
    for each in report.get("missing", ()):
        if each["topic"] == topic:
            gap = Gap(each["start"], each["end"], "deleted before they were loaded")
            found.setdefault(each["partition"], []).append(gap)
    return found


def describe_gaps(gaps: Iterable[Gap], source: str, below: int) -> str:
    """The gaps of a partition as text: the first ones, and the number of the rest."""
    texts = [
        f"{source} from offset {max(gap.start, 0)} to {below if gap.end is None else gap.end}: "
        f"{gap.why}"
        for gap in gaps
    ]
    further = len(texts) - GAPS_SHOWN_MAX
    return "; ".join(texts[:GAPS_SHOWN_MAX] + ([f"and {further} more"] if further > 0 else []))
