"""Compares published with received sequences.

For each topic, window and producer, P is the set of published sequences, and R is the set that a
tier of consumers received. Both are unions of any number of audit reports, in any order:

    missing = P - R      uncovered = R - P      duplicated = messages received - |R|

Source: the 2011 paper, section 5: consumers count what they received and validate it against the
monitoring events.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from logbroker.audit.domain.set_store import UNPACKED_BYTES_MAX, SetStore
from logbroker.client.audit_format.report import PublishedReport, ReceivedCount, ReceivedReport
from logbroker.client.audit_format.sequence_set import SequenceSet
from logbroker.errors import LogbrokerError

RANGES_MAX: Final = 10
"""Ranges of missing sequences that a row lists."""

ENTRIES_MAX: Final = 2_000_000
"""Sets, producers and first windows in one comparison: about a gigabyte, however small."""

WINDOW_MS: Final = 60_000
"""The length of a window that its producer has not reported."""

LOCAL: Final = ""
"""The origin of reports that no mirror copied."""

_MIRROR: Final = "mirror@"
"""The prefix of the tiers of mirrors; see `logbroker.mirror.mirror`."""


class ComparisonTooLarge(LogbrokerError):
    """The comparison needs too much memory; compare a shorter period or fewer topics."""


class Status(StrEnum):
    """The status of a row; the worst comes first."""

    MISSING = "missing"
    PENDING = "pending"
    UNCOVERED = "uncovered"
    UNREAD = "unread"
    COMPLETE = "complete"


class Scope(NamedTuple):
    """Windows that begin in [start_ms, end_ms), of these topics; of all topics if none is given."""

    start_ms: int
    end_ms: int
    topics: frozenset[str] = frozenset()

    def has_window(self, topic: str, window_ms: int) -> bool:
        """Whether to compare a window of a topic."""
        return self.start_ms <= window_ms < self.end_ms and self.has_topic(topic)

    def has_topic(self, topic: str) -> bool:
        """Whether to compare a topic."""
        return not self.topics or topic in self.topics


class ReportDeadline(NamedTuple):
    """The current time, and how long producers and consumers may take to report."""

    now_ms: int
    lateness_ms: int

    def is_open(self, time_ms: int) -> bool:
        """Whether more may be reported after a report of this time.

        A time far in the future is forged or of a wrong clock, and nothing waits for it.
        """
        age_ms = self.now_ms - time_ms
        return -self.lateness_ms <= age_ms < self.lateness_ms


@dataclass(frozen=True, slots=True)
class Row:
    """What one tier received of one producer's messages to a topic in one window.

    `tier` is None if no tier has reported the topic, `window_end_ms` if the producer has not
    reported. `missing_ranges` has the first missing sequences, as [start, end).
    """

    topic: str
    window_ms: int
    window_end_ms: int | None
    producer: str
    tier: str | None
    published: int
    received: int
    missing: int
    duplicated: int
    uncovered: int
    status: Status
    missing_ranges: tuple[tuple[int, int], ...] = ()


class ProducerWindow(NamedTuple):
    """A window of one producer's messages to a topic."""

    topic: str
    window_ms: int
    producer: str


_Key = tuple[ProducerWindow, str | None]
"""With a tier: what it received. With None: what was published."""


@dataclass(slots=True)
class _Reported:
    """The newest time of the reports of a set, and the number of messages in them."""

    time_ms: int = 0
    count: int = 0


class Comparison:
    """Adds audit reports in any order, and then returns rows."""

    def __init__(self, scope: Scope, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        """Create a comparison without reports."""
        self._scope = scope
        self._sets: SetStore[_Key] = SetStore(unpacked_bytes_max)
        self._reported: dict[_Key, _Reported] = {}
        self._ends_ms: dict[ProducerWindow, int] = {}
        self._origins: dict[str, str] = {}
        # By topic, tier and producer; also of windows that are not compared.
        self._first_ms: dict[tuple[str, str, str], int] = {}
        self.tiers: set[str] = set()
        """Every tier that reported any of the topics."""

    def add_published(self, report: PublishedReport, time_ms: int, origin: str = LOCAL) -> None:
        """Add the report of a producer; `origin` is where a mirror copied it from.

        Raises:
            ComparisonTooLarge: there are more than `ENTRIES_MAX` entries.
        """
        if not self._scope.has_topic(report.topic):
            return
        if report.producer not in self._origins:
            self._check_room()
        if self._origins.setdefault(report.producer, origin) != LOCAL and origin == LOCAL:
            self._origins[report.producer] = LOCAL
        if self._scope.has_window(report.topic, report.window_ms):
            window = ProducerWindow(report.topic, report.window_ms, report.producer)
            self._ends_ms[window] = report.window_end_ms
            self._add((window, None), report.sequences, len(report.sequences), time_ms)

    def add_received(self, report: ReceivedReport, time_ms: int) -> None:
        """Add the report of a consumer; a report that was written twice is to be added once.

        Raises:
            ComparisonTooLarge: there are more than `ENTRIES_MAX` entries.
        """
        for count in report.counts:
            if self._scope.has_topic(count.topic):
                self._add_count(report.tier, count, time_ms)

    def rows(self, deadline: ReportDeadline, named_tiers: Collection[str] = ()) -> Iterator[Row]:
        """Yield a row for each tier that received messages of a window, or is expected to.

        Rows are sorted by topic, window, producer and tier. A tier is expected to receive a topic
        from the first window on that it reported; `named_tiers` are always expected.
        """
        expected_tiers = _ExpectedTiers(self._first_ms, self._origins, named_tiers)
        tiers_of: dict[ProducerWindow, set[str]] = {}
        for window, tier in self._reported:
            tiers = tiers_of.setdefault(window, set())
            if tier is not None:
                tiers.add(tier)
        for window in sorted(tiers_of):
            tiers = tiers_of[window]
            if (window, None) in self._reported:
                tiers = tiers | expected_tiers.of_window(window)
            for each in sorted(tiers):
                yield self._row(window, each, deadline)
            if not tiers:
                yield self._unread(window)

    def _add_count(self, tier: str, count: ReceivedCount, time_ms: int) -> None:
        place = count.topic, tier, count.producer
        if place not in self._first_ms:
            self._check_room()
        self.tiers.add(tier)
        first_ms = self._first_ms.get(place, count.window_ms)
        self._first_ms[place] = min(first_ms, count.window_ms)
        if self._scope.has_window(count.topic, count.window_ms):
            window = ProducerWindow(count.topic, count.window_ms, count.producer)
            self._add((window, tier), count.sequences, count.count, time_ms)

    def _add(self, key: _Key, sequences: SequenceSet, count: int, time_ms: int) -> None:
        reported = self._reported.get(key)
        if reported is None:
            self._check_room()
            reported = self._reported[key] = _Reported()
        reported.count += count
        reported.time_ms = max(reported.time_ms, time_ms)
        self._sets.add(key, sequences)

    def _check_room(self) -> None:
        """Check that there is room for a new entry."""
        if len(self._reported) + len(self._first_ms) + len(self._origins) >= ENTRIES_MAX:
            raise ComparisonTooLarge(
                f"too many sets and producers to compare: max {ENTRIES_MAX}; "
                "choose a shorter period, or topics"
            )

    def _row(self, window: ProducerWindow, tier: str, deadline: ReportDeadline) -> Row:
        published = self._sets[window, None]
        received = self._sets[window, tier]
        lost = published.difference(received)
        missing, received_count = len(lost), len(received)
        uncovered = received.difference_count(published)
        reported = self._reported.get((window, tier), _Reported())
        return Row(
            topic=window.topic,
            window_ms=window.window_ms,
            window_end_ms=self._ends_ms.get(window),
            producer=window.producer,
            tier=tier,
            published=len(published),
            received=received_count,
            missing=missing,
            duplicated=reported.count - received_count,
            uncovered=uncovered,
            status=self._status(window, tier, missing, uncovered, deadline),
            missing_ranges=tuple(islice(_ranges(lost), RANGES_MAX)),
        )

    def _unread(self, window: ProducerWindow) -> Row:
        return Row(
            topic=window.topic,
            window_ms=window.window_ms,
            window_end_ms=self._ends_ms[window],
            producer=window.producer,
            tier=None,
            published=len(self._sets[window, None]),
            received=0,
            missing=0,
            duplicated=0,
            uncovered=0,
            status=Status.UNREAD,
        )

    def _status(
        self,
        window: ProducerWindow,
        tier: str,
        missing: int,
        uncovered: int,
        deadline: ReportDeadline,
    ) -> Status:
        if missing:
            is_open = deadline.is_open(self._reported[window, None].time_ms)
            return Status.PENDING if is_open else Status.MISSING
        if uncovered:
            is_open = self._may_be_covered(window, self._reported[window, tier], deadline)
            return Status.PENDING if is_open else Status.UNCOVERED
        return Status.COMPLETE

    def _may_be_covered(
        self, window: ProducerWindow, received: _Reported, deadline: ReportDeadline
    ) -> bool:
        """Whether the producer may still report what was received.

        It waits for the end of the window and for its own lateness, and its report takes a while
        to arrive.
        """
        end_ms = self._ends_ms.get(window, window.window_ms + WINDOW_MS)
        is_plausible = received.time_ms <= deadline.now_ms + deadline.lateness_ms
        newest_ms = max(end_ms, received.time_ms) if is_plausible else end_ms
        return deadline.now_ms < newest_ms + 2 * deadline.lateness_ms


class _ExpectedTiers:
    """Which tiers are expected to receive a window.

    A mirror of the topic `audit` also copies reports of producers whose messages it may not copy.
    So a tier that receives messages of one origin is not expected to receive those of another,
    unless it reported some. Nor is a mirror of an idle data centre expected to copy what another
    mirror copies.
    """

    def __init__(
        self,
        first_ms: dict[tuple[str, str, str], int],
        origins: dict[str, str],
        named_tiers: Collection[str],
    ) -> None:
        self._origins = origins
        self._named = frozenset(named_tiers)
        # By topic and origin: the first window that each tier reported.
        self._first_ms: dict[tuple[str, str], dict[str, int]] = {}
        self._reporting: dict[str, set[str]] = {}
        for (topic, tier, producer), first in first_ms.items():
            if producer in origins:
                tiers = self._first_ms.setdefault((topic, origins[producer]), {})
                tiers[tier] = min(first, tiers.get(tier, first))
                self._reporting.setdefault(topic, set()).add(tier)

    def of_window(self, window: ProducerWindow) -> set[str]:
        """Return the tiers that are expected to receive a window."""
        first_ms = self._first_ms.get((window.topic, self._origins[window.producer]), {})
        started = {tier for tier, first in first_ms.items() if first <= window.window_ms}
        silent = self._named - self._reporting.get(window.topic, set())
        if any(map(_is_mirror, first_ms)):
            silent = frozenset(tier for tier in silent if not _is_mirror(tier))
        return started | (self._named & first_ms.keys()) | silent


def _is_mirror(tier: str) -> bool:
    return tier.startswith(_MIRROR)


def _ranges(sequences: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending numbers as ranges [start, end)."""
    start: int | None = None
    end = 0
    for each in sequences:
        if start is not None and each != end:
            yield start, end
            start = None
        if start is None:
            start = each
        end = each + 1
    if start is not None:
        yield start, end
