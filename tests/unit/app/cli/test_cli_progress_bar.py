"""The progress line of a replay on a terminal."""

from typing import Any

import pytest

from app.cli.progress_bar import WIDTH, describe

JOB: dict[str, Any] = {
    "state": "ONGOING",
    "progress": 0.5,
    "counts": {"delivered": 12_345, "duplicates": 0, "failed": 0},
    "eventsPerSecond": 2_041.5,
    "etaSeconds": 6.2,
    "waitingFor": None,
}


FAILURE = {
    "failedAttempts": 1_012,
    "lastError": "HTTP 500 Internal Server Error",
    "nextAttemptAt": "2026-11-21T08:10:09.123Z",
    "waitingEvents": 676,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["ONGOING", " 50%", "12,345 delivered", "2,042/s", "ETA 6 s"]),
        ({"counts": {"delivered": 1, "duplicates": 2, "failed": 3}}, ["2 duplicates", "3 failed"]),
        (
            {"state": "COMPLETED", "result": "completed-with-failures"},
            ["COMPLETED WITH FAILURES", "12,345 delivered"],
        ),
        (
            {"unreadable": {"batches": 2, "offsets": 1_000}},
            ["2 unreadable batches skipped (1,000 offsets)"],
        ),
        ({"state": "OPEN", "waitingFor": "the log"}, ["OPEN", "waiting: the log"]),
        (
            {"receiverFailure": FAILURE},
            [
                "receiver fails: 1,012 failed attempts, last: HTTP 500 Internal Server Error",
                "next attempt 2026-11-21 08:10:09 UTC; 676 events wait",
            ],
        ),
    ],
)
def test_a_line_has_state_counts_rate_and_eta(changes: dict[str, Any], words: list[str]) -> None:
    line = describe(JOB | changes)
    assert all(word in line for word in words)
    assert line.count("█") == line.count("·") == WIDTH // 2


def test_unknown_values_are_omitted() -> None:
    job = JOB | {"progress": 0.0, "eventsPerSecond": None, "etaSeconds": None}
    line = describe(job)
    assert line.count("·") == WIDTH
    assert not any(word in line for word in ("/s", "ETA", "duplicates", "failed", "waiting"))
