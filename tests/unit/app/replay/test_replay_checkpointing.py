"""The ledger of deliveries: out of order in, one honest offset out."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from app.replay.checkpointing import Checkpoint, DeliveryLedger
from app.replay.model import Counts, Failure


def failure(offset: int) -> Failure:
    return Failure(offset, f"evt_{offset}", 6, 503, "answered 503")


def test_the_checkpoint_waits_for_the_lowest_open_record() -> None:
    ledger = DeliveryLedger(10, Counts())
    first, second, third = (ledger.open(offset) for offset in (11, 14, 17))
    ledger.read_to(20)
    ledger.deliver(third)
    ledger.deliver(second)
    assert ledger.checkpoint() == Checkpoint(11, Counts(), ())
    ledger.deliver(first)
    assert ledger.checkpoint() == Checkpoint(20, Counts(delivered=3), ())


def test_counts_count_exactly_what_lies_below_the_checkpoint() -> None:
    ledger = DeliveryLedger(0, Counts())
    first = ledger.open(0)
    ledger.duplicate(1)
    second = ledger.open(2)
    ledger.duplicate(3)
    ledger.read_to(4)
    ledger.deliver(first)
    assert ledger.checkpoint() == Checkpoint(2, Counts(delivered=1, duplicates=1), ())
    ledger.fail(second, failure(2))
    assert ledger.checkpoint() == Checkpoint(4, Counts(1, 2, 1), (failure(2),))


def test_a_record_that_is_settled_before_all_is_read_lies_below_the_checkpoint() -> None:
    ledger = DeliveryLedger(0, Counts())
    ledger.deliver(ledger.open(5))
    assert ledger.checkpoint() == Checkpoint(6, Counts(delivered=1), ())
    last = ledger.open(8)
    assert ledger.checkpoint() == Checkpoint(8, Counts(delivered=1), ())
    ledger.deliver(last)
    assert ledger.checkpoint() == Checkpoint(9, Counts(delivered=2), ())


def test_a_stretch_without_records_moves_the_checkpoint() -> None:
    ledger = DeliveryLedger(100, Counts())
    ledger.read_to(5_000)
    assert ledger.checkpoint().offset == 5_000


def test_counts_go_on_from_those_of_the_job_taken_over() -> None:
    ledger = DeliveryLedger(50, Counts(delivered=7, duplicates=2, failed=1))
    ledger.deliver(ledger.open(60))
    ledger.read_to(61)
    assert ledger.checkpoint() == Checkpoint(61, Counts(8, 2, 1), ())


def test_failures_come_again_until_they_are_on_record() -> None:
    ledger = DeliveryLedger(0, Counts())
    ledger.fail(ledger.open(0), failure(0))
    lost = ledger.checkpoint()
    ledger.fail(ledger.open(1), failure(1))
    again = ledger.checkpoint()
    assert lost.failures == (failure(0),)
    assert again.failures == (failure(0), failure(1))
    ledger.fail(ledger.open(2), failure(2))
    ledger.recorded(again)
    assert ledger.checkpoint().failures == (failure(2),)


def test_a_failure_above_the_checkpoint_is_not_handed_over_yet() -> None:
    ledger = DeliveryLedger(0, Counts())
    blocked = ledger.open(0)
    ledger.fail(ledger.open(1), failure(1))
    assert ledger.checkpoint() == Checkpoint(0, Counts(), ())
    ledger.deliver(blocked)
    assert ledger.checkpoint().failures == (failure(1),)


def test_what_is_beyond_the_checkpoint_is_counted() -> None:
    ledger = DeliveryLedger(0, Counts())
    blocked = ledger.open(0)
    for offset in (1, 2, 3):
        ledger.deliver(ledger.open(offset))
    assert ledger.ahead == 4
    ledger.deliver(blocked)
    assert ledger.ahead == 0


@given(st.lists(st.sampled_from("odf-"), max_size=60), st.randoms(use_true_random=False))
def test_in_any_order_the_checkpoint_is_the_lowest_open_offset(
    kinds: list[str], random: Random
) -> None:
    ledger = DeliveryLedger(0, Counts())
    entries = {}
    for offset, kind in enumerate(kinds):
        if kind == "d":
            ledger.duplicate(offset)
        elif kind != "-":
            entries[offset] = ledger.open(offset)
    ledger.read_to(len(kinds))
    while entries:
        offset = random.choice(sorted(entries))
        entry = entries.pop(offset)
        if kinds[offset] == "f":
            ledger.fail(entry, failure(offset))
        else:
            ledger.deliver(entry)
        checkpoint = ledger.checkpoint()
        assert checkpoint.offset == min(entries, default=len(kinds))
        below = kinds[: checkpoint.offset]
        assert checkpoint.counts == Counts(below.count("o"), below.count("d"), below.count("f"))
        assert [one.offset for one in checkpoint.failures] == [
            offset for offset, kind in enumerate(below) if kind == "f"
        ]
