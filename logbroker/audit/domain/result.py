"""The result of an audit: totals for each topic and tier, warnings, and JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from logbroker.audit.domain.comparison import ReportDeadline, Row, Scope, Status
from logbroker.client.audit_format.report import time_text

COUNTS: Final = ("published", "received", "missing", "duplicated", "uncovered")
"""The counts of a row and of a total."""

EVENTS: Final = ("published", "received", "repeated", "malformed", "ahead", "future")
"""The counts of the topic's records."""


@dataclass(slots=True)
class Total:
    """The sum of all rows of a topic and tier; `tier` is None if no tier reported the topic."""

    topic: str
    tier: str | None
    published: int = 0
    received: int = 0
    missing: int = 0
    duplicated: int = 0
    uncovered: int = 0
    rows: Counter[Status] = field(default_factory=Counter)
    """The number of rows by status."""

    @property
    def status(self) -> Status:
        """The worst status of its rows."""
        return worst(self.rows)

    def add_row(self, row: Row) -> None:
        """Add a row."""
        self.rows[row.status] += 1
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(row, name))


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst status; complete without any."""
    found = set(statuses)
    return next((status for status in Status if status in found), Status.COMPLETE)


def totals(rows: Iterable[Row]) -> list[Total]:
    """Return the totals, sorted by topic and tier."""
    found: dict[tuple[str, str], Total] = {}
    for row in rows:
        key = row.topic, row.tier or ""
        found.setdefault(key, Total(row.topic, row.tier)).add_row(row)
    return [found[key] for key in sorted(found)]


def result_json(
    scope: Scope,
    deadline: ReportDeadline,
    rows: Sequence[Row],
    events: Mapping[str, int],
    warnings: Iterable[str],
) -> dict[str, Any]:
    """Return the JSON output: every row, and the totals."""
    sums = totals(rows)
    return {
        "from": time_text(scope.start_ms),
        "to": time_text(scope.end_ms),
        "time": time_text(deadline.now_ms),
        "latenessS": deadline.lateness_ms / 1_000,
        "status": worst(total.status for total in sums),
        "events": {name: events.get(name, 0) for name in EVENTS},
        "warnings": list(warnings),
        "totals": [_total_json(total) for total in sums],
        "rows": [_row_json(row) for row in rows],
    }


def _total_json(total: Total) -> dict[str, Any]:
    return {
        "topic": total.topic,
        "tier": total.tier,
        **_counts(total),
        "status": total.status,
        "rows": {status: total.rows[status] for status in Status},
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "windowStart": time_text(row.window_ms),
        "windowEnd": None if row.window_end_ms is None else time_text(row.window_end_ms),
        "producer": row.producer,
        "tier": row.tier,
        **_counts(row),
        "status": row.status,
        "missingRanges": [[start, end] for start, end in row.missing_ranges],
    }


def _counts(of: Row | Total) -> dict[str, int]:
    return {name: getattr(of, name) for name in COUNTS}


def is_shown(row: Row) -> bool:
    """Whether to print a row; pending ones are in the totals only."""
    return row.status in (Status.MISSING, Status.UNCOVERED)


def comparison_warnings(
    sums: Iterable[Total], reporting: Iterable[str], named_tiers: Iterable[str], scope: Scope
) -> Iterator[str]:
    """Yield what could not be compared; `reporting` are the tiers that reported anything."""
    known = set(reporting)
    for tier in named_tiers:
        if tier not in known:
            yield f"tier {tier!r} has not reported anything"
    sums = list(sums)
    for topic in sorted(scope.topics - {total.topic for total in sums}):
        yield f"topic {topic!r} has no reported messages in these windows"
    for total in sums:
        if total.tier is None:
            yield (
                f"{total.published} messages to topic {total.topic!r} are not compared: "
                "no tier has reported their windows"
            )
    if not sums:
        yield "nothing to compare: no messages were published or received"
