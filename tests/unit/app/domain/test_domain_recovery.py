"""The state machine of automatic recovery."""

import pytest

from app.domain.delivery import Rejected, Unreachable
from app.domain.hours import HOUR_MS
from app.domain.model import Window
from app.domain.recovery import Recovery, RecoveryRecord, begins_recovery, may_postpone
from app.domain.retry import RETRY_AFTER_S_MAX, RetryPolicy

NOW_MS = 1_800_000_000_000
POLICY = RetryPolicy(base_s=1.0, cap_s=60.0)
DOWN = Unreachable("connection refused")
MIDDLE = 0.5
"""The jitter that changes nothing."""


def failing(event_ms: int = NOW_MS - 5_000) -> Recovery:
    """A webhook that began to fail, and whose window is stored."""
    recovery = Recovery.begin(POLICY, NOW_MS - 9_000, event_ms)
    recovery.record_stored(recovery.record.window)
    return recovery


@pytest.mark.parametrize(
    ("failures", "attempts", "is_exhausted", "expected"),
    [
        (4, 2, False, False),
        (5, 2, False, True),
        (4, 4, True, True),
        # Another event was accepted between the attempts of this one.
        (3, 4, True, False),
    ],
)
def test_five_failures_or_an_exhausted_schedule_begin_a_recovery(
    failures: int, attempts: int, is_exhausted: bool, expected: bool
) -> None:
    assert begins_recovery(failures, attempts, is_exhausted=is_exhausted) is expected


def test_in_strict_order_a_failed_retry_begins_a_recovery() -> None:
    begins = [
        begins_recovery(count, count, is_exhausted=False, is_ordered=True) for count in (1, 2)
    ]
    assert begins == [False, True]


def test_nothing_is_covered_until_the_window_is_stored() -> None:
    recovery = Recovery.begin(POLICY, NOW_MS - 9_000, NOW_MS - 5_000)
    assert not recovery.is_covered(NOW_MS - 5_000, NOW_MS)
    recovery.record_stored(recovery.record.window)
    assert recovery.is_covered(NOW_MS - 5_000, NOW_MS)
    # Events as they happen need no further write, for days.
    assert recovery.is_covered(NOW_MS + 100 * HOUR_MS - 1, NOW_MS + 100 * HOUR_MS)
    assert not recovery.widen(NOW_MS + 100 * HOUR_MS - 1, NOW_MS + 100 * HOUR_MS)


@pytest.mark.parametrize("event_ms", [NOW_MS - HOUR_MS, NOW_MS + 240_000])
def test_an_event_outside_of_the_window_is_covered_once_a_wider_one_is_stored(
    event_ms: int,
) -> None:
    recovery = failing()
    assert not recovery.is_covered(event_ms, NOW_MS)
    assert recovery.widen(event_ms, NOW_MS)
    assert not recovery.is_covered(event_ms, NOW_MS)
    recovery.record_stored(recovery.record.window)
    assert recovery.is_covered(event_ms, NOW_MS)
    assert recovery.is_covered(NOW_MS - 5_000, NOW_MS)
    # Its neighbours need no other write.
    assert not recovery.widen(event_ms, NOW_MS)
    assert recovery.is_covered(min(event_ms, NOW_MS) - 1_000, NOW_MS)


def test_the_window_begins_with_the_first_missed_event() -> None:
    assert failing(NOW_MS - 5_000).record.window.from_ms == NOW_MS - 5_000


def test_the_pauses_between_probes_grow_to_a_limit() -> None:
    recovery, pauses_s = failing(), []
    for _ in range(6):
        recovery.record_failed_probe(DOWN, NOW_MS, MIDDLE)
        pauses_s.append((recovery.next_probe_ms - NOW_MS) / 1_000)
    assert pauses_s == [1, 4, 16, 60, 60, 60]
    assert recovery.failed_probes == 6


@pytest.mark.parametrize(("header_s", "pause_s"), [(30.0, 30.0), (7_200.0, RETRY_AFTER_S_MAX)])
def test_retry_after_lengthens_a_pause_within_a_limit(header_s: float, pause_s: float) -> None:
    recovery = failing()
    recovery.record_failed_probe(Rejected(503, header_s, "HTTP 503"), NOW_MS, MIDDLE)
    assert recovery.next_probe_ms == NOW_MS + 1_000 * pause_s


def test_a_stored_recovery_continues_at_its_schedule() -> None:
    stored = RecoveryRecord(NOW_MS - 9_000, Window(NOW_MS - 5_000, NOW_MS), 3, NOW_MS + 700)
    recovery = Recovery.resume(POLICY, stored)
    assert recovery.has_missed
    assert recovery.is_covered(NOW_MS - 5_000, NOW_MS)
    recovery.record_failed_probe(DOWN, NOW_MS + 700, MIDDLE)
    assert recovery.record == RecoveryRecord(stored.since_ms, stored.window, 4, NOW_MS + 60_700)


def test_a_recovery_waits_for_its_receiver_for_a_day_and_for_one_event_less_long() -> None:
    assert may_postpone(HOUR_MS, 1_000, is_alone=False)
    assert not may_postpone(24 * HOUR_MS, 1, is_alone=False)
    assert may_postpone(HOUR_MS, 9, is_alone=True)
    assert not may_postpone(HOUR_MS, 10, is_alone=True)
