"""A partition waits only while it has something to read and does not move."""

from logbroker.client.stalls import StallDetector


def test_the_time_counts_from_the_first_update_at_a_position() -> None:
    detector: StallDetector[int] = StallDetector()
    assert detector.update(0, 10, is_waiting=True, now_s=1.0) == 0
    assert detector.update(0, 10, is_waiting=True, now_s=31.0) == 30
    assert detector.update(1, 10, is_waiting=True, now_s=31.0) == 0
    assert detector.update(0, 10, is_waiting=True, now_s=61.0) == 60


def test_progress_begins_a_new_wait() -> None:
    detector: StallDetector[int] = StallDetector()
    detector.update(0, 10, is_waiting=True, now_s=1.0)
    assert detector.update(0, 11, is_waiting=True, now_s=50.0) == 0
    assert detector.update(0, 11, is_waiting=True, now_s=52.0) == 2


def test_a_paused_or_empty_partition_does_not_wait() -> None:
    detector: StallDetector[int] = StallDetector()
    detector.update(0, 10, is_waiting=True, now_s=1.0)
    assert detector.update(0, 10, is_waiting=False, now_s=50.0) == 0
    assert detector.update(0, 10, is_waiting=True, now_s=51.0) == 0
    detector.forget(0)
    assert detector.update(0, 10, is_waiting=True, now_s=99.0) == 0
