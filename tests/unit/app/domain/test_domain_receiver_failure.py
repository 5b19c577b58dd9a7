"""What a replay shows while its receiver fails."""

from app.domain.delivery import Rejected, Unreachable
from app.domain.receiver_failure import (
    REASON_CHARS_MAX,
    ReceiverFailure,
    ReceiverFailureTracker,
)

DOWN = Rejected(503, None, "HTTP 503 Service Unavailable")
SILENT = Unreachable("no response within 15 s")


def test_nothing_is_shown_while_no_request_is_repeated() -> None:
    tracker = ReceiverFailureTracker()
    assert tracker.failure(None, 3) is None
    tracker.record_end(1)
    assert tracker.failure(5_000, 3) is None


def test_the_last_error_and_the_next_attempt_of_all_requests_are_shown() -> None:
    tracker = ReceiverFailureTracker()
    tracker.record_failure(1, SILENT, 1_000, 9_000)
    tracker.record_failure(2, DOWN, 2_000, 3_000)
    shown = ReceiverFailure(2, 1_000, 2_000, 503, DOWN.reason, 3_000, 40)
    assert tracker.failure(None, 40) == shown
    # While the receiver is probed, nothing else is sent.
    probed = tracker.failure(7_000, 40)
    assert probed is not None
    assert probed.next_attempt_ms == 7_000
    tracker.record_end(2)
    rest = tracker.failure(None, 39)
    assert rest is not None
    assert (rest.next_attempt_ms, rest.waiting_events) == (9_000, 39)
    tracker.record_end(1)
    assert tracker.failure(None, 0) is None


def test_a_new_series_counts_from_its_first_attempt() -> None:
    tracker = ReceiverFailureTracker()
    for now_ms in (1_000, 2_000):
        tracker.record_failure(1, DOWN, now_ms, now_ms + 500)
    tracker.record_end(1)
    tracker.record_failure(2, Unreachable("x" * 10_000), 5_000, 6_000)
    shown = ReceiverFailure(1, 5_000, 5_000, None, "x" * REASON_CHARS_MAX, 6_000, 1)
    assert tracker.failure(None, 1) == shown
