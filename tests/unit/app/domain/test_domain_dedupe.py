"""Digests of events, and bounded sets of digests."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from app.domain.dedupe import SeenHashes, event_digest


def test_the_same_event_has_the_same_digest() -> None:
    assert event_digest("evt_1", b"{}") == event_digest("evt_1", b"{}")


def test_another_id_or_another_body_is_another_event() -> None:
    assert event_digest("evt_1", b"{}") != event_digest("evt_2", b"{}")
    assert event_digest("evt_1", b"{}") != event_digest("evt_1", b"[]")


def test_the_digest_separates_id_and_body() -> None:
    assert event_digest("ab", b"c") != event_digest("a", b"bc")
    assert event_digest("1", b":x") != event_digest("", b"1:x")


def test_an_added_digest_is_found() -> None:
    seen = SeenHashes(10)
    assert seen.add(7)
    assert seen.add(8)
    assert not seen.add(7)


def test_the_oldest_digests_are_evicted_first() -> None:
    seen = SeenHashes(4)
    for digest in (1, 2, 3, 4, 5):
        seen.add(digest)
    assert not seen.add(5)
    assert not seen.add(4)
    assert not seen.add(3)
    assert seen.add(1)


def test_digests_with_the_same_slot_and_the_digest_zero_are_distinguished() -> None:
    seen = SeenHashes(16)
    digests = [0, 2**32, 2**33, -(2**32), -(2**63), 2**63 - 1]
    assert [seen.add(digest) for digest in digests + digests] == [True] * 6 + [False] * 6


@given(st.lists(st.integers(-20, 20)), st.integers(1, 30))
def test_it_has_between_half_the_limit_and_the_limit(digests: list[int], entries_max: int) -> None:
    seen = SeenHashes(entries_max)
    order: list[int] = []  # of the different ones, the latest last
    for digest in digests:
        digest = digest or 1
        is_new = seen.add(digest)
        if digest in order[-((entries_max + 1) // 2) :]:
            assert not is_new
        if digest not in order[-(entries_max + 1) :]:
            assert is_new
        if is_new:
            order.append(digest)


def test_reused_tables_are_empty() -> None:
    seen = SeenHashes(20_000)
    digests = [event_digest(f"evt_{number}", b"") for number in range(50_000)]
    for digest in digests + digests[:30_000]:
        assert seen.add(digest)
    assert not any(map(seen.add, digests[20_000:30_000]))


def test_a_digest_takes_eighteen_bytes() -> None:
    tracemalloc.start()
    try:
        seen = SeenHashes(62_500)
        for number in range(75_000):
            assert seen.add(event_digest(f"evt_{number}", b""))
        _, highest_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert highest_bytes < 18 * 62_500


def test_it_contains_at_least_the_latest_half_of_the_limit() -> None:
    seen = SeenHashes(6)
    for digest in (1, 2, 3, 1, 4):
        seen.add(digest)
    assert [digest in seen for digest in (1, 2, 3, 4, 5)] == [True] * 4 + [False]
    for digest in (5, 6):
        seen.add(digest)
    assert [digest in seen for digest in (1, 2, 3, 4, 5, 6)] == [False] * 3 + [True] * 3


def test_its_memory_does_not_grow() -> None:
    tracemalloc.start()
    try:
        seen = SeenHashes(20_000)
        at_start_bytes, _ = tracemalloc.get_traced_memory()
        for number in range(60_000):
            seen.add(event_digest(f"evt_{number}", b""))
        at_end_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert at_start_bytes > 12 * 20_000
    assert at_end_bytes - at_start_bytes < 1_000
