"""What processes tell of themselves, in words."""

import pytest

from app.console.formats import NOTHING
from app.console.processes import in_words
from app.domain.processes import Process, ProcessKind


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"jobs": 3, "jobsMax": 4}, "jobs: 3, at most: 4"),
        ({"webhooks": 2, "waitingEvents": 0, "ready": 1}, "webhooks: 2, events that wait: 0"),
        ({"webhooks": 2, "ready": 0}, "waits for its share of the partitions, webhooks: 2"),
        ({"ofALaterVersion": 7}, "ofALaterVersion: 7"),
        ({}, NOTHING),
    ],
)
def test_a_process_tells_in_words_what_it_has_to_do(details: dict[str, int], words: str) -> None:
    """Names of the API's answer are put in words; those that are new here stand as they are."""
    process = Process(
        kind=ProcessKind.LIVE,
        name="host:1",
        origin="local",
        details=details,
        started_ms=0,
        heartbeat_ms=0,
        silent_ms=0,
    )
    assert in_words(process) == words
