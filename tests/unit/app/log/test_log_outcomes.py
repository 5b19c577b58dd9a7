"""The records that tell what became of a live delivery."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.delivery import LiveOutcome
from app.log.outcomes import (
    REASON_CHARS_MAX,
    DeliveryOutcome,
    OutcomeRetries,
    decode_outcome,
    encode_outcome,
)

FAILED = DeliveryOutcome(
    partition=3,
    offset=17,
    event_id="evt_1",
    outcome=LiveOutcome.FAILED,
    attempts=4,
    status=503,
    reason="HTTP 503 Service Unavailable",
    time_ms=1_795_248_272_000,
    digest=0x0A54B21BAFAF1C25,
)


def test_an_outcome_is_written_as_its_page_says() -> None:
    assert json.loads(encode_outcome(FAILED)) == {
        "partition": 3,
        "offset": 17,
        "eventId": "evt_1",
        "outcome": "failed",
        "attempts": 4,
        "status": 503,
        "reason": "HTTP 503 Service Unavailable",
        "time": "2026-11-21T08:04:32.000Z",
        "digest": "0a54b21bafaf1c25",
    }


@given(
    st.builds(
        DeliveryOutcome,
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1),
        event_id=st.text(),
        outcome=st.sampled_from(LiveOutcome),
        attempts=st.integers(0, 100),
        status=st.none() | st.integers(100, 999),
        reason=st.none() | st.text(max_size=REASON_CHARS_MAX),
        time_ms=st.integers(0, 4_000_000_000_000),
        digest=st.none() | st.integers(0, 2**64 - 1),
        duration_ms=st.none() | st.integers(0, 10**7).map(lambda tenths: tenths / 10),
        retries=st.none() | st.sampled_from(OutcomeRetries),
    )
)
def test_what_is_written_is_read_back(outcome: DeliveryOutcome) -> None:
    assert decode_outcome(encode_outcome(outcome)) == outcome


def test_a_long_reason_is_cut() -> None:
    long = DeliveryOutcome(1, 2, "evt", LiveOutcome.SKIPPED, 0, None, "x" * 10_000, 0, None)
    read = decode_outcome(encode_outcome(long))
    assert read is not None
    assert read.reason == "x" * REASON_CHARS_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"partition": -1},
        {"offset": "17"},
        {"offset": True},
        {"offset": 2**63},
        {"outcome": "lost"},
        {"attempts": None},
        {"status": 5.5},
        {"time": "yesterday"},
        {"time": 5},
        {"digest": 5},
        {"digest": "5a54b21bafaf1c2"},
        {"digest": "5A54B21BAFAF1C25"},
        {"retries": "no"},
        {"retries": ["ended"]},
        {"durationMs": "31"},
        {"durationMs": True},
        {"durationMs": -1},
        {"durationMs": 10**400},
        {"durationMs": float("nan")},
        {"durationMs": float("inf")},
    ],
)
def test_a_record_of_somebody_else_is_no_outcome(change: dict[str, object]) -> None:
    value = json.loads(encode_outcome(FAILED)) | change
    assert decode_outcome(json.dumps(value).encode()) is None


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_no_outcome(value: bytes | None) -> None:
    assert decode_outcome(value) is None


def test_an_outcome_of_the_version_before_has_no_digest() -> None:
    value = json.loads(encode_outcome(FAILED))
    del value["digest"]
    read = decode_outcome(json.dumps(value).encode())
    assert read == FAILED._replace(digest=None)
