"""Late events are those seen but not counted."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.jobs.windowed_counts.ledger import WindowLedger

MINUTE = 60_000


def test_events_seen_but_not_counted_are_late() -> None:
    ledger = WindowLedger().after({0: 5, MINUTE: 3}, {})
    assert (ledger.seen, ledger.late) == (8, 0)
    # One event of the first minute is in time, two are late.
    ledger = ledger.after({0: 1, 9 * MINUTE: 1}, {0: 6, MINUTE: 3})
    assert (ledger.late, ledger.open) == (0, {9 * MINUTE: 1})
    ledger = ledger.after({0: 1, MINUTE: 1, 9 * MINUTE: 1}, {})
    assert (ledger.seen, ledger.late, ledger.open) == (13, 2, {9 * MINUTE: 2})


def test_a_window_closed_without_a_row_is_detected_with_the_next_one() -> None:
    ledger = WindowLedger().after({0: 5}, {0: 5}).after({3 * MINUTE: 2}, {})
    assert ledger.late == 0
    ledger = ledger.after({7 * MINUTE: 1}, {7 * MINUTE: 1})
    assert (ledger.late, ledger.open) == (2, {})


def test_a_ledger_round_trips() -> None:
    for ledger in (WindowLedger(), WindowLedger().after({-MINUTE: 1, 0: 5}, {-MINUTE: 1})):
        assert WindowLedger.from_json(ledger.as_json()) == ledger


BATCHES = st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12)


@given(BATCHES, st.integers(0, 5))
def test_late_events_equal_those_that_spark_dropped(
    batches: list[list[int]], watermark: int
) -> None:
    """Simulates Spark: drops events behind the watermark and closes windows."""
    ledger = WindowLedger()
    held: Counter[int] = Counter()
    dropped = counted = latest = 0
    drops_below = closes_below = 0
    # The last batch closes all windows.
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
