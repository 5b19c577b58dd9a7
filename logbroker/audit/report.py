"""What an audit says, as rows and as totals for each topic and tier, and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from logbroker.audit.comparison import Patience, Row, Scope, Status
from logbroker.client.audit_format.report import time_text

COUNTS: Final = ("published", "received", "missing", "duplicated", "uncovered")
"""What is counted, in a row and in a total."""

EVENTS: Final = ("published", "received", "repeated", "malformed", "ahead", "future")
"""What is counted of the topic's records."""


@dataclass(slots=True)
class Total:
    """All rows of a topic and tier; `tier` is None where nobody told of the topic."""

    topic: str
    tier: str | None
    published: int = 0
    received: int = 0
    missing: int = 0
    duplicated: int = 0
    uncovered: int = 0
    rows: Counter[Status] = field(default_factory=Counter)
    """How many there are of each status."""

    @property
    def status(self) -> Status:
        """The worst of its rows."""
        return worst(self.rows)

    def add(self, row: Row) -> None:
        """Count a row."""
        self.rows[row.status] += 1
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(row, name))


def worst(statuses: Iterable[Status]) -> Status:
    """The status that says most; complete if there is none."""
    found = set(statuses)
    return next((status for status in Status if status in found), Status.COMPLETE)


def totals(rows: Iterable[Row]) -> list[Total]:
    """By topic and tier, in this order."""
    found: dict[tuple[str, str], Total] = {}
    for row in rows:
        key = row.topic, row.tier or ""
        found.setdefault(key, Total(row.topic, row.tier)).add(row)
    return [found[key] for key in sorted(found)]


def document(
    scope: Scope,
    patience: Patience,
    rows: Sequence[Row],
    events: Mapping[str, int],
    warnings: Iterable[str],
) -> dict[str, Any]:
    """The report for scripts: every row, and the totals."""
    sums = totals(rows)
    return {
        "from": time_text(scope.start_ms),
        "to": time_text(scope.end_ms),
        "time": time_text(patience.now_ms),
        "latenessS": patience.lateness_ms / 1_000,
        "status": worst(total.status for total in sums),
        "events": {name: events.get(name, 0) for name in EVENTS},
        "warnings": list(warnings),
        "totals": [_total_document(total) for total in sums],
        "rows": [_row_document(row) for row in rows],
    }


def _total_document(total: Total) -> dict[str, Any]:
    return {
        "topic": total.topic,
        "tier": total.tier,
        **_counts(total),
        "status": total.status,
        "rows": {status: total.rows[status] for status in Status},
    }


def _row_document(row: Row) -> dict[str, Any]:
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
    """Whether somebody may have to look into a row; what is pending now is in the totals."""
    return row.status in (Status.MISSING, Status.UNCOVERED)


def warnings_of(
    sums: Iterable[Total], told: Iterable[str], named_tiers: Iterable[str], scope: Scope
) -> Iterator[str]:
    """What there was nothing to compare with; `told` are the tiers that told anything."""
    known = set(told)
    for tier in named_tiers:
        if tier not in known:
            yield f"tier {tier!r} has told of nothing that it received"
    sums = list(sums)
    for topic in sorted(scope.topics - {total.topic for total in sums}):
        yield f"topic {topic!r} has no messages in these windows that anybody has told of"
    for total in sums:
        if total.tier is None:
            yield (
                f"{total.published} messages to topic {total.topic!r} are compared with nothing: "
                "no tier has told of their windows"
            )
    if not sums:
        yield "nothing was published and nothing received: there is nothing to compare"
