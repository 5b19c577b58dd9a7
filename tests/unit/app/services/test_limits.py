from hypothesis import given
from hypothesis import strategies as st

from app.api.admission import quota_headers
from app.services.limits import WINDOW_S, Quota, QuotaCounter


def test_each_request_uses_the_quota_until_it_is_exceeded() -> None:
    quotas = QuotaCounter(10)
    taken = [quotas.count_request("key_1", 3, 100.0) for _ in range(5)]
    assert [standing.remaining for standing in taken] == [2, 1, 0, 0, 0]
    assert [standing.is_exceeded for standing in taken] == [False, False, False, True, True]


def test_a_window_starts_with_its_first_request_and_lasts_a_minute() -> None:
    quotas = QuotaCounter(10)
    assert quotas.count_request("key_1", 1, 1_000.5).reset_s == WINDOW_S
    late = quotas.count_request("key_1", 1, 1_000.5 + WINDOW_S - 0.5)
    assert (late.is_exceeded, late.reset_s) == (True, 1)
    assert quotas.count_request("key_1", 1, 1_000.5 + WINDOW_S) == Quota(1, 1, WINDOW_S)


def test_callers_have_separate_quotas() -> None:
    quotas = QuotaCounter(10)
    quotas.count_request("key_1", 1, 0.0)
    assert not quotas.count_request("key_2", 1, 0.0).is_exceeded


def test_reading_a_quota_counts_nothing() -> None:
    quotas = QuotaCounter(10)
    assert quotas.quota_of("key_1", 2, 0.0) == Quota(2, 0, 0)
    quotas.count_request("key_1", 2, 0.0)
    assert quotas.quota_of("key_1", 2, 1.0) == Quota(2, 1, WINDOW_S - 1)
    assert quotas.quota_of("key_1", 2, WINDOW_S + 1.0) == Quota(2, 0, 0)


def test_quota_headers_have_the_policy() -> None:
    assert quota_headers(Quota(600, 1, 60)) == {
        "ratelimit-limit": "600",
        "ratelimit-remaining": "599",
        "ratelimit-reset": "60",
        "ratelimit-policy": '"requests";q=600;w=60',
    }


def test_the_oldest_window_is_dropped_first() -> None:
    quotas = QuotaCounter(2)
    for caller, now_s in (("a", 0.0), ("b", 1.0), ("a", 2.0), ("c", 3.0)):
        quotas.count_request(caller, 5, now_s)
    assert len(quotas) == 2
    assert [quotas.quota_of(caller, 5, 4.0).used for caller in "abc"] == [0, 1, 1]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.floats(0, 100, allow_nan=False)), max_size=200
    ),
    st.integers(1, 4),
)
def test_callers_are_bounded_and_no_window_exceeds_its_limit(
    steps: list[tuple[str, float]], callers_max: int
) -> None:
    quotas, now_s = QuotaCounter(callers_max), 0.0
    everybody = QuotaCounter(100)
    allowed: dict[str, list[float]] = {}
    for caller, pause_s in steps:
        now_s += pause_s
        quotas.count_request(caller, 3, now_s)
        assert len(quotas) <= callers_max
        if not everybody.count_request(caller, 3, now_s).is_exceeded:
            allowed.setdefault(caller, []).append(now_s)
    for times in allowed.values():
        # Two windows meet at a border: of seven let through, six fit around it.
        assert all(late - early >= WINDOW_S for early, late in zip(times, times[6:], strict=False))
