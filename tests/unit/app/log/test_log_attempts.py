"""The records of `delivery_attempts`."""

import json
from dataclasses import replace

import pytest

from app.domain.delivery import LiveOutcome
from app.log.attempts import FailedAttempt, decode_attempt, encode_attempt
from app.log.outcomes import DeliveryOutcome, decode_outcome, encode_outcome

ATTEMPT = FailedAttempt(
    3, 17, "evt_1", 1, 503, "HTTP 503", "ü\ud800", 31.26, 1_763_712_272_000, 1_763_712_277_000
)
OUTCOME = DeliveryOutcome(3, 17, "evt_1", LiveOutcome.FAILED, 4, 503, "HTTP 503", 0, None, 8.5)


def test_an_attempt_is_read_as_it_was_written() -> None:
    found = decode_attempt(encode_attempt(ATTEMPT))
    assert found == replace(ATTEMPT, duration_ms=31.3)
    last = replace(ATTEMPT, status=None, response=None, next_ms=None, duration_ms=0.0)
    assert decode_attempt(encode_attempt(last)) == last


def test_attempts_and_outcomes_are_told_apart() -> None:
    assert decode_outcome(encode_attempt(ATTEMPT)) is None
    assert decode_attempt(encode_outcome(OUTCOME)) is None
    assert decode_outcome(encode_outcome(OUTCOME)) == OUTCOME


@pytest.mark.parametrize("name", ["partition", "attempt", "durationMs", "time", "nextTime"])
def test_invalid_records_are_no_attempts(name: str) -> None:
    members = json.loads(encode_attempt(ATTEMPT))
    assert decode_attempt(json.dumps(members | {name: "x"}).encode()) is None
    del members[name]
    assert decode_attempt(json.dumps(members).encode()) is None
    assert decode_attempt(json.dumps(members | {name: 10**400}).encode()) is None
    assert decode_attempt(b"[" * 100_000) is None
    assert decode_attempt(None) is None
