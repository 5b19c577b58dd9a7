"""Digests of events, and the bounded memory of them."""

from hypothesis import given
from hypothesis import strategies as st

from app.replay.dedupe import SeenHashes, event_digest


def test_a_digest_has_128_bits() -> None:
    assert len(event_digest("evt_1", b"{}")) == 16


def test_the_same_event_has_the_same_digest() -> None:
    assert event_digest("evt_1", b"{}") == event_digest("evt_1", b"{}")


def test_another_id_or_another_body_is_another_event() -> None:
    assert event_digest("evt_1", b"{}") != event_digest("evt_2", b"{}")
    assert event_digest("evt_1", b"{}") != event_digest("evt_1", b"[]")


def test_no_id_borrows_from_its_body() -> None:
    assert event_digest("ab", b"c") != event_digest("a", b"bc")
    assert event_digest("1", b":x") != event_digest("", b"1:x")


def test_what_was_added_is_seen_afterwards() -> None:
    seen = SeenHashes(10)
    assert seen.add(b"a")
    assert seen.add(b"b")
    assert not seen.add(b"a")


def test_the_oldest_is_forgotten_first() -> None:
    seen = SeenHashes(2)
    for digest in (b"a", b"b", b"c"):
        seen.add(digest)
    assert not seen.add(b"b")
    assert not seen.add(b"c")
    assert seen.add(b"a")


@given(st.lists(st.integers(0, 20)), st.integers(1, 30))
def test_memory_stays_bounded_and_what_it_holds_is_never_new(
    numbers: list[int], entries_max: int
) -> None:
    seen = SeenHashes(entries_max)
    order: list[int] = []
    for number in numbers:
        is_new = seen.add(bytes([number]))
        assert is_new == (number not in order[-entries_max:])
        if is_new:
            order.append(number)
        assert len(seen) <= entries_max
