"""The ledger of deliveries: one checkpoint for deliveries in any order."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from app.domain.checkpointing import Checkpoint, DeliveryLedger
from app.domain.hours import HOUR_MS, count_by_hour
from app.domain.model import Counts, Failure, UnreadableCounts

ONE = {0: 1}
"""A single event, of the first hour."""

TAKEN = {200: 1}
"""One event with this status."""


def failure(offset: int) -> Failure:
    return Failure(offset, f"evt_{offset}", 6, 503, "answered 503")


def test_the_checkpoint_waits_for_the_lowest_unsettled_record() -> None:
    ledger = DeliveryLedger(10, Counts())
    first, second, third = (ledger.add_entry(offset, offset + 1, ONE) for offset in (11, 14, 17))
    ledger.advance_position(20)
    ledger.settle(third, TAKEN)
    ledger.settle(second, TAKEN)
    assert ledger.checkpoint() == Checkpoint(11, Counts(), ())
    ledger.settle(first, TAKEN)
    assert ledger.checkpoint() == Checkpoint(20, Counts(delivered=3), ())


def test_counts_cover_exactly_the_records_below_the_checkpoint() -> None:
    ledger = DeliveryLedger(0, Counts())
    first = ledger.add_entry(0, 1, ONE)
    ledger.add_duplicates(2, ONE)
    second = ledger.add_entry(2, 3, ONE)
    ledger.add_duplicates(4, ONE)
    ledger.advance_position(4)
    ledger.settle(first, TAKEN)
    assert ledger.checkpoint() == Checkpoint(2, Counts(delivered=1, duplicates=1), ())
    ledger.settle(second, {}, [failure(2)])
    assert ledger.checkpoint() == Checkpoint(4, Counts(1, 2, 1), (failure(2),))


def test_an_entry_is_settled_up_to_an_offset() -> None:
    ledger = DeliveryLedger(0, Counts())
    entry = ledger.add_entry(0, 6, {0: 3, 1: 2}, {0: 1})
    ledger.add_duplicates(7, {0: 1})
    last = ledger.add_entry(7, 8, ONE)
    ledger.settle(last, TAKEN)
    ledger.split(entry, 4, {0: 2, 1: 1}, {0: 1})
    ledger.settle(entry, {200: 2}, [failure(2)], {0: 1})
    checkpoint = ledger.checkpoint()
    assert checkpoint == Checkpoint(4, Counts(delivered=2, duplicates=1, failed=1), (failure(2),))
    assert checkpoint.hours == {0: Counts(1, 1, 1), 1: Counts(1)}
    assert ledger.events_above_recorded == 6


def test_a_record_settled_during_a_read_lies_below_the_checkpoint() -> None:
    ledger = DeliveryLedger(0, Counts())
    ledger.settle(ledger.add_entry(5, 6, ONE), TAKEN)
    assert ledger.checkpoint() == Checkpoint(6, Counts(delivered=1), ())
    last = ledger.add_entry(8, 9, ONE)
    assert ledger.checkpoint() == Checkpoint(8, Counts(delivered=1), ())
    ledger.settle(last, TAKEN)
    assert ledger.checkpoint() == Checkpoint(9, Counts(delivered=2), ())


def test_a_range_without_records_advances_the_checkpoint() -> None:
    ledger = DeliveryLedger(100, Counts())
    ledger.advance_position(5_000)
    assert ledger.checkpoint().offset == 5_000


def test_counts_continue_from_those_before_a_takeover() -> None:
    ledger = DeliveryLedger(50, Counts(delivered=7, duplicates=2, failed=1))
    ledger.settle(ledger.add_entry(60, 61, ONE), TAKEN)
    ledger.advance_position(61)
    assert ledger.checkpoint() == Checkpoint(61, Counts(8, 2, 1), ())


def test_failures_are_repeated_until_they_are_stored() -> None:
    ledger = DeliveryLedger(0, Counts())
    ledger.settle(ledger.add_entry(0, 1, ONE), {}, [failure(0)])
    lost = ledger.checkpoint()
    ledger.settle(ledger.add_entry(1, 2, ONE), {}, [failure(1)])
    again = ledger.checkpoint()
    assert lost.failures == (failure(0),)
    assert again.failures == (failure(0), failure(1))
    ledger.settle(ledger.add_entry(2, 3, ONE), {}, [failure(2)])
    ledger.forget_recorded(again)
    assert ledger.checkpoint().failures == (failure(2),)


def test_a_failure_above_the_checkpoint_is_not_reported_yet() -> None:
    ledger = DeliveryLedger(0, Counts())
    blocked = ledger.add_entry(0, 1, ONE)
    ledger.settle(ledger.add_entry(1, 2, ONE), {}, [failure(1)])
    assert ledger.checkpoint() == Checkpoint(0, Counts(), ())
    ledger.settle(blocked, TAKEN)
    assert ledger.checkpoint().failures == (failure(1),)


def test_events_above_the_stored_checkpoint_are_counted() -> None:
    ledger = DeliveryLedger(0, Counts(delivered=7, failed=2))
    blocked = ledger.add_entry(0, 1, ONE)
    for offset in (1, 2, 3):
        ledger.settle(ledger.add_entry(offset, offset + 1, ONE), TAKEN)
    assert (ledger.events_above_recorded, ledger.events_to_record) == (4, 0)
    ledger.settle(blocked, TAKEN)
    assert (ledger.events_above_recorded, ledger.events_to_record) == (4, 4)
    stored = ledger.checkpoint()
    ledger.settle(ledger.add_entry(4, 5, ONE), {}, [failure(4)])
    ledger.forget_recorded(stored)
    assert (ledger.events_above_recorded, ledger.events_to_record) == (1, 1)


def test_events_of_one_entry_are_settled_together() -> None:
    ledger = DeliveryLedger(0, Counts())
    entry = ledger.add_entry(3, 9, {0: 4}, {0: 2})
    assert ledger.events_above_recorded == 4
    assert ledger.checkpoint() == Checkpoint(3, Counts(), ())
    ledger.settle(entry, {200: 2}, [failure(5), failure(8)])
    assert ledger.checkpoint() == Checkpoint(9, Counts(2, 2, 2), (failure(5), failure(8)))
    assert ledger.events_to_record == 4


def test_statuses_cover_only_events_below_the_checkpoint() -> None:
    ledger = DeliveryLedger(0, Counts(3, 0, 1), {"200": 2, "204": 1, "none": 1})
    blocked, batch, silent = (ledger.add_entry(offset, offset + 1, ONE) for offset in (1, 2, 3))
    ledger.settle(batch, {200: 4, 202: 1}, [failure(2)])
    ledger.settle(silent, {}, [Failure(3, "evt_3", 6, None, "timeout")])
    assert ledger.checkpoint().statuses == {"200": 2, "204": 1, "none": 1}
    ledger.settle(blocked, TAKEN)
    assert ledger.checkpoint().statuses == {"200": 7, "202": 1, "204": 1, "503": 1, "none": 2}


def test_without_earlier_statuses_none_are_counted() -> None:
    ledger = DeliveryLedger(0, Counts(delivered=1), None)
    ledger.settle(ledger.add_entry(1, 2, ONE), TAKEN)
    assert ledger.checkpoint() == Checkpoint(2, Counts(delivered=2), ())
    assert ledger.checkpoint().statuses is None


Run = tuple[str, int, int]
"""Consecutive records: "o" delivered, "f" failed, "d" duplicates, "-" filtered out; their number;
and the number of duplicates among them."""


def times(start: int, end: int) -> list[int]:
    """Times of the records at these offsets: three per hour, hours in no order."""
    return [HOUR_MS * (offset // 3 % 4) for offset in range(start, end)]


def hours_of(kinds: str, start: int, end: int) -> dict[int, Counts]:
    """The counts of the records at these offsets, by hour."""
    found = {}
    for hour in range(4):
        below = [k for n, k in enumerate(kinds[:end]) if n >= start and n // 3 % 4 == hour]
        counts = Counts(below.count("o"), below.count("d"), below.count("f"))
        if counts != Counts():
            found[hour] = counts
    return found


@given(
    st.lists(st.tuples(st.sampled_from("odf-"), st.integers(1, 4), st.integers(0, 2)), max_size=40),
    st.randoms(use_true_random=False),
)
def test_the_checkpoint_is_the_lowest_unsettled_offset_in_any_order(
    runs: list[Run], random: Random
) -> None:
    ledger = DeliveryLedger(0, Counts(), {})
    entries, kinds = {}, ""
    for kind, count, among in runs:
        start, kinds = len(kinds), kinds + kind * count
        if kind in "of":
            kinds += "d" * among
            hours = count_by_hour(times(start, start + count))
            duplicates = count_by_hour(times(start + count, len(kinds)))
            entries[start] = ledger.add_entry(start, len(kinds), hours, duplicates)
        elif kind == "d":
            ledger.add_duplicates(len(kinds), count_by_hour(times(start, len(kinds))))
    ledger.advance_position(len(kinds))
    recorded = 0
    while entries:
        offset = random.choice(sorted(entries))
        entry = entries.pop(offset)
        is_failed = kinds[offset] == "f"
        failures = [failure(offset + n) for n in range(entry.events)] if is_failed else []
        delivered = {} if is_failed else {200 + offset % 3: entry.events}
        ledger.settle(entry, delivered, failures, entry.hours if is_failed else {})
        checkpoint = ledger.checkpoint()
        assert checkpoint.hours == hours_of(kinds, recorded, checkpoint.offset)
        assert checkpoint.offset == min(entries, default=len(kinds))
        below = kinds[: checkpoint.offset]
        assert checkpoint.counts == Counts(below.count("o"), below.count("d"), below.count("f"))
        assert checkpoint.statuses is not None
        given_up = checkpoint.statuses.get("503", 0)
        assert given_up == below.count("f")
        assert sum(checkpoint.statuses.values()) == below.count("o") + given_up
        assert [one.offset for one in checkpoint.failures] == [
            offset for offset, kind in enumerate(below) if recorded <= offset and kind == "f"
        ]
        if random.random() < 0.5:
            ledger.forget_recorded(checkpoint)
            recorded = checkpoint.offset


def test_skipped_batches_count_once_the_checkpoint_is_above_them() -> None:
    ledger = DeliveryLedger(10, Counts(), unreadable=UnreadableCounts(1, 4))
    ledger.add_unreadable(6, 10)  # below the checkpoint of the previous worker
    first = ledger.add_entry(10, 11, ONE)
    ledger.add_unreadable(11, 20)
    ledger.advance_position(30)
    assert ledger.checkpoint().unreadable == UnreadableCounts(1, 4)
    ledger.settle(first, TAKEN)
    assert ledger.checkpoint().unreadable == UnreadableCounts(2, 13)
    assert ledger.checkpoint().unreadable == UnreadableCounts(2, 13)
