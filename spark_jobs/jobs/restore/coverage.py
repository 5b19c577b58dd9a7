"""Which offsets of a topic a raw table has, as its loads tell, and what of them a window lacks.

What a load committed of a partition is all that lies between its position and the one before, but
for what its report calls missing. What a table does not have is a gap: before its first offset,
between, and behind its last.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from spark_jobs.jobs.load import KIND
from spark_jobs.jobs.load_position import read_position
from spark_jobs.tables import Commit, DataFile

DISORDER_MS: Final = 3_600_000
"""How much younger than a record a later one may be that still says: all before was older."""

OLDER_MIN: Final = 100
"""How many offsets in a row have to be older: a few may be of records that came late."""

GAPS_TOLD_MAX: Final = 10
"""A table that was loaded for months beside a short retention may have hundreds."""


class Gap(NamedTuple):
    """The offsets `[start, end)`, which a table does not have; an end of None has none."""

    start: int
    end: int | None
    why: str


@dataclass
class Coverage:
    """The offsets of one partition that a table has, and about when they were."""

    topic_id: UUID | None
    begin: int
    end: int
    missing: list[Gap] = field(default_factory=list)
    _times: list[tuple[int, int]] = field(default_factory=list)
    """Of each file its lowest offset and its latest time, in ms since 1970."""

    def take(self, end: int, files: Iterable[DataFile]) -> None:
        """Take in what one load brought."""
        self.end = end
        for file in files:
            if file.offset_min is not None and file.time_max_ms is not None:
                self._times.append((file.offset_min, file.time_max_ms))

    def lacking(self, start_ms: int, below: int) -> list[Gap]:
        """The gaps in which records of `start_ms` or later may lie that lie below an offset."""
        return [
            gap
            for gap in self._gaps()
            if gap.start < below and self._may_have(gap, start_ms, below)
        ]

    def _gaps(self) -> Iterator[Gap]:
        if self.begin > 0:
            yield Gap(0, self.begin, "the table begins behind them")
        yield from self.missing
        yield Gap(self.end, None, "they are not loaded yet")

    def _may_have(self, gap: Gap, start_ms: int, below: int) -> bool:
        """Whether what follows the gap does not say that all in it was older.

        A late record lies in the file of its own hour, often alone: one old file says nothing. What
        does is that no file of younger records begins for a while. From `below` on, the log was
        younger than the window, so that whatever is older there came late.
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


def coverage(commits: Iterable[Commit], topic: str) -> dict[int, Coverage]:
    """What the loads of a table brought of a topic, by partition; all of its commits are needed."""
    found: dict[int, Coverage] = {}
    for commit in commits:
        if commit.kind != KIND or topic not in (positions := read_position(commit.position)):
            continue
        now = positions[topic]
        lost = _missing(commit.report, topic)
        for partition, end in now.offsets.items():
            place = (topic, partition)
            files = [each for each in commit.added if (each.topic, each.partition) == place]
            known = found.get(partition)
            if known is None or known.topic_id != now.topic_id:
                known = _first(now.topic_id, end, files, is_anew=known is not None)
                found[partition] = known
            known.missing += lost.get(partition, ())
            known.take(end, files)
    return found


def _first(topic_id: UUID | None, end: int, files: list[DataFile], *, is_anew: bool) -> Coverage:
    begin = min((each.offset_min for each in files if each.offset_min is not None), default=end)
    if not is_anew:
        return Coverage(topic_id, begin, end)
    # Whatever the topic of this name had before, nobody can tell whether all of it was loaded.
    return Coverage(topic_id, 0, end, [Gap(-1, begin, "the topic was made anew in front of them")])


def _missing(report: Mapping[str, Any], topic: str) -> dict[int, list[Gap]]:
    found: dict[int, list[Gap]] = {}
    for each in report.get("missing", ()):
        if each["topic"] == topic:
            gap = Gap(each["start"], each["end"], "they were deleted before they were loaded")
            found.setdefault(each["partition"], []).append(gap)
    return found


def in_words(gaps: Iterable[Gap], place: str, below: int) -> str:
    """What a table lacks of a partition, for people: the first gaps, and how many there are."""
    told = [
        f"{place} from offset {max(gap.start, 0)} to {below if gap.end is None else gap.end}: "
        f"{gap.why}"
        for gap in gaps
    ]
    further = len(told) - GAPS_TOLD_MAX
    return "; ".join(told[:GAPS_TOLD_MAX] + ([f"and {further} more"] if further > 0 else []))
