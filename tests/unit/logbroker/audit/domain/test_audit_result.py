import json
from dataclasses import replace

from logbroker.audit.domain.comparison import ReportDeadline, Row, Scope, Status
from logbroker.audit.domain.result import comparison_warnings, result_json, totals, worst

MINUTE_MS = 60_000
T0 = 1_763_712_000_000  # 2025-11-21T08:00:00Z

COMPLETE = Row(
    topic="clicks",
    window_ms=T0,
    window_end_ms=T0 + MINUTE_MS,
    producer="web/1",
    tier="readers",
    published=10,
    received=10,
    missing=0,
    duplicated=2,
    uncovered=0,
    status=Status.COMPLETE,
)
MISSING = replace(
    COMPLETE, received=7, missing=3, status=Status.MISSING, missing_ranges=((1, 3), (9, 10))
)
UNREAD = replace(COMPLETE, topic="other", tier=None, received=0, duplicated=0, status=Status.UNREAD)


def test_a_total_has_all_rows_of_a_topic_and_tier_and_the_worst_status() -> None:
    another = replace(COMPLETE, tier="another")
    found = totals([COMPLETE, UNREAD, MISSING, another, COMPLETE])
    assert [(total.topic, total.tier, total.status) for total in found] == [
        ("clicks", "another", Status.COMPLETE),
        ("clicks", "readers", Status.MISSING),
        ("other", None, Status.UNREAD),
    ]
    readers = found[1]
    assert (readers.published, readers.received, readers.missing) == (30, 27, 3)
    assert (readers.duplicated, readers.uncovered) == (6, 0)
    assert readers.rows == {Status.COMPLETE: 2, Status.MISSING: 1}


def test_the_worst_status_is_a_loss() -> None:
    assert worst([]) is Status.COMPLETE
    assert worst([Status.COMPLETE, Status.UNREAD]) is Status.UNREAD
    assert worst([Status.UNREAD, Status.UNCOVERED]) is Status.UNCOVERED
    assert worst([Status.UNCOVERED, Status.PENDING]) is Status.PENDING
    assert worst([Status.PENDING, Status.MISSING]) is Status.MISSING


def test_the_document_says_all_of_it() -> None:
    scope, deadline = Scope(T0, T0 + MINUTE_MS), ReportDeadline(T0 + 2 * MINUTE_MS, 1_500)
    events = {"published": 1, "received": 2, "repeated": 1}
    found = result_json(scope, deadline, [MISSING], events, ["look out"])
    counts = {"published": 10, "received": 7, "missing": 3, "duplicated": 2, "uncovered": 0}
    rows = {"missing": 1, "pending": 0, "uncovered": 0, "unread": 0, "complete": 0}
    assert json.loads(json.dumps(found)) == {
        "from": "2025-11-21T08:00:00.000Z",
        "to": "2025-11-21T08:01:00.000Z",
        "time": "2025-11-21T08:02:00.000Z",
        "latenessS": 1.5,
        "status": "missing",
        "events": {
            "published": 1,
            "received": 2,
            "repeated": 1,
            "malformed": 0,
            "ahead": 0,
            "future": 0,
        },
        "warnings": ["look out"],
        "totals": [
            {"topic": "clicks", "tier": "readers", **counts, "status": "missing", "rows": rows}
        ],
        "rows": [
            {
                "topic": "clicks",
                "windowStart": "2025-11-21T08:00:00.000Z",
                "windowEnd": "2025-11-21T08:01:00.000Z",
                "producer": "web/1",
                "tier": "readers",
                **counts,
                "status": "missing",
                "missingRanges": [[1, 3], [9, 10]],
            }
        ],
    }


def test_messages_that_are_not_compared_cause_a_warning() -> None:
    scope = Scope(0, 1, frozenset())
    assert list(comparison_warnings(totals([COMPLETE]), {"readers"}, ["readers"], scope)) == []
    assert list(comparison_warnings(totals([UNREAD]), {"readers"}, ["silent"], scope)) == [
        "tier 'silent' has not reported anything",
        "10 messages to topic 'other' are not compared: no tier has reported their windows",
    ]
    (warning,) = comparison_warnings([], (), (), scope)
    assert "nothing to compare" in warning


def test_an_unreported_topic_causes_a_warning() -> None:
    scope = Scope(0, 1, frozenset({COMPLETE.topic, "mistyped"}))
    (warning,) = comparison_warnings(totals([COMPLETE]), {"readers"}, (), scope)
    assert warning.startswith("topic 'mistyped' has no reported messages")
