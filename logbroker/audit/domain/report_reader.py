"""Decodes the records of the topic `audit`, which are untrusted, and counts irregular ones."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from logbroker.audit.domain.comparison import LOCAL, Comparison, ReportDeadline
from logbroker.client.audit_format.report import PublishedReport, ReceivedReport, decode

_DIGEST_BYTES: Final = 8
"""Two of a million reports have the same digest in one of thirty million audits."""


class AuditEntry(NamedTuple):
    """A record of the topic; `origin` is where a mirror copied it from."""

    partition: int
    offset: int
    time_ms: int
    value: bytes | None
    origin: str = LOCAL


class Irregularity(StrEnum):
    """What is irregular about a record."""

    MALFORMED = "malformed"
    REPEATED = "repeated"
    AHEAD = "ahead"
    FUTURE = "future"


_WARNINGS: Final = {
    Irregularity.MALFORMED: "{count} records of the topic are not audit reports, and were skipped",
    Irregularity.AHEAD: "{count} audit reports have times ahead of this machine's clock: "
    "check the clocks",
    Irregularity.FUTURE: "{count} audit reports are about windows in the future: check the clocks",
}
"""Repeated reports are normal, and have no warning."""


class ReportReader:
    """Adds the reports of records to a comparison, and counts irregular records."""

    def __init__(self, comparison: Comparison, deadline: ReportDeadline) -> None:
        """Create a reader without records."""
        self._comparison = comparison
        self._latest_ms = deadline.now_ms + deadline.lateness_ms
        self._digests: set[bytes] = set()
        self._first: dict[Irregularity, AuditEntry] = {}
        self.counts: Counter[str] = Counter()
        """The number of reports of each kind, and of irregular records."""

    def add(self, entry: AuditEntry) -> None:
        """Add one record.

        Raises:
            ComparisonTooLarge: the comparison needs too much memory.
        """
        report = decode(entry.value)
        if report is None:
            self._count(Irregularity.MALFORMED, entry)
            return
        if entry.time_ms > self._latest_ms:
            self._count(Irregularity.AHEAD, entry)
        if any(window_ms > self._latest_ms for window_ms in _windows_ms(report)):
            self._count(Irregularity.FUTURE, entry)
        if isinstance(report, PublishedReport):
            self.counts["published"] += 1
            self._comparison.add_published(report, entry.time_ms, entry.origin)
        elif self._is_new(entry):
            self.counts["received"] += 1
            self._comparison.add_received(report, entry.time_ms)
        else:
            self._count(Irregularity.REPEATED, entry)

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each irregularity that needs attention."""
        for kind, warning in _WARNINGS.items():
            first = self._first.get(kind)
            if first is not None:
                text = warning.format(count=self.counts[kind])
                yield f"{text} (first: partition {first.partition}, offset {first.offset})"

    def _count(self, kind: Irregularity, entry: AuditEntry) -> None:
        self.counts[kind] += 1
        self._first.setdefault(kind, entry)

    def _is_new(self, entry: AuditEntry) -> bool:
        assert entry.value is not None
        digest = blake2b(entry.value, digest_size=_DIGEST_BYTES).digest()
        is_new = digest not in self._digests
        self._digests.add(digest)
        return is_new


def _windows_ms(report: PublishedReport | ReceivedReport) -> Iterator[int]:
    if isinstance(report, PublishedReport):
        yield report.window_ms
    else:
        yield from (count.window_ms for count in report.counts)
