"""The details that processes report, in words."""

import pytest

from app.console.formats import NOTHING
from app.console.log import describe_process
from app.domain.processes import Process, ProcessKind


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"jobs": 3, "jobsMax": 4}, "jobs: 3, max: 4"),
        ({"webhooks": 2, "waitingEvents": 0, "ready": 1}, "webhooks: 2, events queued: 0"),
        ({"webhooks": 2, "ready": 0}, "waiting for partitions, webhooks: 2"),
        ({"ofALaterVersion": 7}, "ofALaterVersion: 7"),
        ({}, NOTHING),
    ],
)
def test_process_details_have_words(details: dict[str, int], words: str) -> None:
    process = Process(
        kind=ProcessKind.LIVE,
        name="host:1",
        origin="local",
        details=details,
        started_ms=0,
        heartbeat_ms=0,
        silent_ms=0,
    )
    assert describe_process(process) == words
