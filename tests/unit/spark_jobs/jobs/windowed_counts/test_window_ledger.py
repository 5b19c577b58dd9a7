"""How many events came too late is told from what was seen and what was counted."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.jobs.windowed_counts.ledger import WindowLedger

MINUTE = 60_000


def test_what_was_seen_and_not_counted_was_late() -> None:
    ledger = WindowLedger().after({0: 5, MINUTE: 3}, {})
    assert (ledger.seen, ledger.late) == (8, 0)
    # One of the first minute comes in time with what closes it, two come after that.
    ledger = ledger.after({0: 1, 9 * MINUTE: 1}, {0: 6, MINUTE: 3})
    assert (ledger.late, ledger.open) == (0, {9 * MINUTE: 1})
    ledger = ledger.after({0: 1, MINUTE: 1, 9 * MINUTE: 1}, {})
    assert (ledger.seen, ledger.late, ledger.open) == (13, 2, {9 * MINUTE: 2})


def test_a_window_that_was_closed_with_nothing_in_it_is_found_out_with_the_next() -> None:
    ledger = WindowLedger().after({0: 5}, {0: 5}).after({3 * MINUTE: 2}, {})
    assert ledger.late == 0
    ledger = ledger.after({7 * MINUTE: 1}, {7 * MINUTE: 1})
    assert (ledger.late, ledger.open) == (2, {})


def test_a_ledger_is_read_back_as_it_was_written() -> None:
    for ledger in (WindowLedger(), WindowLedger().after({-MINUTE: 1, 0: 5}, {-MINUTE: 1})):
        assert WindowLedger.from_json(ledger.as_json()) == ledger


BATCHES = st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12)


@given(BATCHES, st.integers(0, 5))
def test_all_that_is_in_no_window_is_late_in_the_end(
    batches: list[list[int]], watermark: int
) -> None:
    """Minutes of events, in batches, with Spark's own way to drop and to close."""
    ledger = WindowLedger()
    held: Counter[int] = Counter()
    dropped = counted = latest = 0
    drops_below = closes_below = 0
    # The last one closes all windows, so that nothing is left open.
    for batch in [*batches, [100], [], []]:
        for minute in batch:
            if minute + 1 <= drops_below:
                dropped += 1
            else:
                held[minute] += 1
        closed = {minute: count for minute, count in held.items() if minute + 1 <= closes_below}
        for minute in closed:
            del held[minute]
        counted += sum(closed.values())
        ledger = ledger.after(Counter(batch), closed)
        assert ledger.late <= dropped
        latest = max([latest, *batch])
        drops_below, closes_below = closes_below, max(0, latest - watermark)
    assert ledger.seen == dropped + counted + sum(held.values())
    pending = sum(ledger.open.values()) - sum(held.values())
    assert ledger.late + pending == dropped
