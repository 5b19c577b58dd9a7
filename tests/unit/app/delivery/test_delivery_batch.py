"""Batches: how events are grouped, and how the ledger counts them."""

from hypothesis import given
from hypothesis import strategies as st

from app.delivery.batch import BATCH_BYTES_MAX, BatchBuilder, CompletedBatches
from app.domain.checkpointing import DeliveryLedger, Entry
from app.domain.hours import HOUR_MS
from app.domain.model import Counts
from app.log.event import LoggedEvent

RECORDS = st.lists(st.sampled_from("ed-") | st.just("e"), max_size=60)
"""Kinds of records: an event, a duplicate, or a record that is not selected."""


def event(offset: int, size: int = 2) -> LoggedEvent:
    return LoggedEvent(offset, offset // 4 * HOUR_MS, b"wh", f"evt_{offset}", "t", b"x" * size)


def build(builder: BatchBuilder, kinds: list[str], start: int = 0) -> CompletedBatches:
    for offset, kind in enumerate(kinds, start):
        if kind == "e":
            builder.add_event(event(offset))
        elif kind == "d":
            builder.add_duplicate(event(offset))
    return builder.take_completed(start + len(kinds))


class CheckedLedger:
    """A ledger that is checked after every step."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.entries: list[Entry] = []
        self.ledger = DeliveryLedger(0, Counts())

    def add(self, completed: CompletedBatches) -> None:
        for batch in completed.batches:
            if batch.duplicates_before:
                self.ledger.add_duplicates(batch.start, batch.duplicates_before)
            self.entries.append(
                self.ledger.add_entry(batch.start, batch.end, batch.hours, batch.duplicates)
            )
            self.check()
        if completed.duplicates:
            self.ledger.add_duplicates(completed.position, completed.duplicates)
        self.ledger.advance_position(completed.position)
        self.check()

    def settle(self, index: int) -> None:
        if self.entries:
            entry = self.entries.pop(index % len(self.entries))
            self.ledger.settle(entry, {200: entry.events})
            self.check()

    def check(self) -> None:
        checkpoint = self.ledger.checkpoint()
        below = self.kinds[: checkpoint.offset]
        assert checkpoint.counts == Counts(below.count("e"), below.count("d"), 0)
        counted = [(n // 4, kind) for n, kind in enumerate(below) if kind != "-"]
        assert checkpoint.hours == {
            hour: Counts(counted.count((hour, "e")), counted.count((hour, "d")), 0)
            for hour in {hour for hour, _ in counted}
        }


@given(
    st.lists(st.tuples(RECORDS, st.lists(st.integers(0, 99), max_size=5)), max_size=6),
    st.integers(1, 7),
)
def test_every_checkpoint_counts_exactly_the_records_below_it(
    reads: list[tuple[list[str], list[int]]], events_max: int
) -> None:
    """Records are grouped and added read by read, and settled in any order in between."""
    builder, ledger = BatchBuilder(events_max), CheckedLedger()
    for read, settled in reads:
        completed = build(builder, read, len(ledger.kinds))
        assert all(1 <= len(batch.events) <= events_max for batch in completed.batches)
        ledger.kinds += read
        ledger.add(completed)
        for index in settled:
            ledger.settle(index)
    builder.complete_batch()
    ledger.add(builder.take_completed(len(ledger.kinds)))
    while ledger.entries:
        ledger.settle(0)
    assert ledger.ledger.checkpoint().offset == len(ledger.kinds)


def test_a_partial_batch_holds_the_position_back() -> None:
    builder = BatchBuilder(3)
    completed = build(builder, ["e", "e", "e", "-", "e", "d", "-"])
    assert [[each.offset for each in batch.events] for batch in completed.batches] == [[0, 1, 2]]
    assert (completed.position, completed.duplicates) == (4, {})
    assert builder.has_partial_batch
    builder.complete_batch()
    (rest,) = builder.take_completed(7).batches
    assert (rest.start, rest.end, rest.hours, rest.duplicates) == (4, 6, {1: 1}, {1: 1})


def test_the_byte_limit_applies_to_batches_of_several_events() -> None:
    builder = BatchBuilder(100)
    for offset, size in enumerate(
        [BATCH_BYTES_MAX // 2, BATCH_BYTES_MAX // 2, 2 * BATCH_BYTES_MAX, 10]
    ):
        builder.add_event(event(offset, size))
    builder.complete_batch()
    assert [len(batch.events) for batch in builder.take_completed(4).batches] == [1, 1, 1, 1]
