"""The state machine of automatic recovery."""

import pytest

from app.domain.delivery import Rejected, Unreachable
from app.domain.hours import HOUR_MS
from app.domain.model import Window
from app.domain.recovery import (
    ConsecutiveFailures,
    Outage,
    OutageRecord,
    begins_outage,
    may_postpone,
)
from app.domain.retry import RETRY_AFTER_S_MAX, RetryPolicy

NOW_MS = 1_800_000_000_000
POLICY = RetryPolicy(base_s=1.0, cap_s=60.0)
DOWN = Unreachable("connection refused")
MIDDLE = 0.5
"""The jitter that changes nothing."""


def failing(event_ms: int = NOW_MS - 5_000) -> Outage:
    """A webhook that began to fail, and whose window is stored."""
    recovery = Outage.begin(POLICY, NOW_MS - 9_000, event_ms)
    recovery.record_stored(recovery.record.window)
    return recovery


def failures_of(*events: int) -> ConsecutiveFailures:
    """The failures of events, whose times are their numbers."""
    failures = ConsecutiveFailures()
    for each in events:
        failures.record(each, each)
    return failures


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
@pytest.mark.parametrize("has_scheduled_retry", [False, True])
def test_five_failures_or_exhausted_live_attempts_begin_a_recovery(
    failures: int, attempts: int, is_exhausted: bool, expected: bool, has_scheduled_retry: bool
) -> None:
    of_two = failures_of(1, *[2] * (failures - 1))
    found = begins_outage(
        of_two, attempts, is_exhausted=is_exhausted, has_scheduled_retry=has_scheduled_retry
    )
    assert found is expected


@pytest.mark.parametrize(("count", "is_exhausted"), [(4, True), (9, False)])
def test_an_event_that_fails_alone_begins_a_recovery_only_without_a_scheduled_retry(
    count: int, is_exhausted: bool
) -> None:
    begins = [
        begins_outage(
            failures_of(*[1] * count), count, is_exhausted=is_exhausted, has_scheduled_retry=has
        )
        for has in (True, False)
    ]
    assert begins == [False, True]


def test_failures_know_their_earliest_event_and_whether_they_are_of_one() -> None:
    assert failures_of(7, 7).is_of_one_event
    found = failures_of(7, 5, 7, 9)
    assert (found.count, found.earliest_ms, found.is_of_one_event) == (4, 5, False)


def test_in_strict_order_a_failed_retry_begins_a_recovery() -> None:
    begins = [
        begins_outage(failures_of(*[1] * count), count, is_exhausted=False, is_ordered=True)
        for count in (1, 2)
    ]
    assert begins == [False, True]


def test_nothing_is_covered_until_the_window_is_stored() -> None:
    recovery = Outage.begin(POLICY, NOW_MS - 9_000, NOW_MS - 5_000)
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
    stored = OutageRecord(NOW_MS - 9_000, Window(NOW_MS - 5_000, NOW_MS), 3, NOW_MS + 700)
    recovery = Outage.resume(POLICY, stored)
    assert recovery.has_missed
    assert recovery.is_covered(NOW_MS - 5_000, NOW_MS)
    recovery.record_failed_probe(DOWN, NOW_MS + 700, MIDDLE)
    assert recovery.record == OutageRecord(stored.since_ms, stored.window, 4, NOW_MS + 60_700)


def test_a_recovery_waits_for_its_receiver_for_a_day_and_for_one_event_less_long() -> None:
    assert may_postpone(HOUR_MS, 1_000, is_alone=False)
    assert not may_postpone(24 * HOUR_MS, 1, is_alone=False)
    assert may_postpone(HOUR_MS, 9, is_alone=True)
    assert not may_postpone(HOUR_MS, 10, is_alone=True)
