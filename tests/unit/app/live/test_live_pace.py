"""How fast a receiver takes events, and which of them are remembered."""

from app.domain.dedupe import RecentDigests
from app.domain.rates import FAST_PER_S, ThroughputEstimate


def taken(pace: ThroughputEstimate, count: int, now_s: float) -> None:
    for _ in range(count):
        pace.record_delivery(now_s)


def test_a_receiver_is_fast_by_what_it_took_in_this_second_or_the_one_before() -> None:
    pace = ThroughputEstimate()
    taken(pace, FAST_PER_S - 1, 10.1)
    assert not pace.is_fast(10.2)
    taken(pace, 1, 10.9)
    assert pace.is_fast(10.9)
    assert pace.is_fast(11.9)
    assert not pace.is_fast(12.0)


def test_what_was_long_ago_does_not_count() -> None:
    pace = ThroughputEstimate()
    taken(pace, FAST_PER_S, 10.0)
    taken(pace, 1, 15.0)
    assert not pace.is_fast(15.0)


def test_two_slow_seconds_make_no_fast_one() -> None:
    pace = ThroughputEstimate()
    taken(pace, FAST_PER_S - 1, 10.0)
    taken(pace, FAST_PER_S - 1, 11.0)
    assert not pace.is_fast(11.5)


def test_the_oldest_digest_is_forgotten_first_and_seeing_one_again_keeps_its_age() -> None:
    recent = RecentDigests(3)
    for digest in (1, 2, 3, 1, 4):
        recent.add(digest)
    assert [digest in recent for digest in (1, 2, 3, 4)] == [False, True, True, True]
