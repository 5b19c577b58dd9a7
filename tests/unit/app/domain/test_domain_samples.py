"""How often the progress of a replay is sampled."""

from app.domain.samples import SampleSchedule, is_due

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def test_the_first_sample_is_due_at_once() -> None:
    assert is_due(None, 0, 0)


def test_in_the_first_minute_a_sample_is_due_every_second() -> None:
    assert not is_due(5_000, 0, 5_999)
    assert is_due(5_000, 0, 6_000)


def test_later_a_gap_is_a_sixtieth_of_the_time_since_the_start() -> None:
    assert not is_due(0, -59 * MINUTE_MS, MINUTE_MS - 1_000)
    assert is_due(0, -59 * MINUTE_MS, MINUTE_MS)


def test_a_day_has_some_hundreds_of_samples() -> None:
    taken, last_ms = 0, None
    for now_ms in range(0, DAY_MS, 1_000):
        if is_due(last_ms, 0, now_ms):
            taken, last_ms = taken + 1, now_ms
    assert 400 < taken < 600


def test_a_worker_requests_samples_one_gap_after_the_start_and_then_each_gap() -> None:
    schedule = SampleSchedule(0, 70_000)
    asked = [now_ms for now_ms in range(70_000, 75_000, 250) if schedule.is_due(now_ms)]
    assert asked == [71_000, 72_000, 73_000, 74_000]


def test_after_a_takeover_samples_are_as_rare_as_before() -> None:
    schedule = SampleSchedule(10 * 60 * MINUTE_MS, 0)
    assert not schedule.is_due(10 * MINUTE_MS)
    assert schedule.is_due(11 * MINUTE_MS)
    assert not schedule.is_due(12 * MINUTE_MS)
