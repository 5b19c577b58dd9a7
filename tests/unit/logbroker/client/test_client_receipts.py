from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client import receipts as receipts_module
from logbroker.client.audit_event import AuditRecord, Receipt, Received, decode
from logbroker.client.audit_mark import SEQUENCE_MAX, Mark, encode_mark
from logbroker.client.receipts import ReceiptBook
from logbroker.client.sequence_set import SequenceSet
from logbroker.client.stamper import Stamper
from logbroker.errors import ConfigurationError
from tests.support.kafka.audit_counts import compared

MINUTE_MS = 60_000
T0 = 1_763_712_000_000
TOPIC = "clicks"


def received(records: Iterable[AuditRecord]) -> list[Received]:
    found = []
    for record in records:
        event = decode(record.value)
        assert isinstance(event, Received)
        assert record.key == event.tier.encode()
        found.append(event)
    return found


def counted(records: Iterable[AuditRecord]) -> list[Receipt]:
    return [receipt for event in received(records) for receipt in event.receipts]


def header(sequence: int, producer: str = "p", window_ms: int = T0) -> bytes:
    return encode_mark(Mark(producer, window_ms, sequence))


def test_a_book_counts_by_topic_producer_and_window() -> None:
    book = ReceiptBook("billing", "web-1", clock=lambda: 1_763_712_090.5)
    book.note(TOPIC, header(0))
    book.note("views", header(7))
    book.note(TOPIC, header(4))
    book.note(TOPIC, header(0, window_ms=T0 + MINUTE_MS))
    book.note(TOPIC, header(3, producer="o"))
    book.note(TOPIC, header(0))
    (event,) = received(book.take())
    assert (event.tier, event.consumer, event.time_ms) == ("billing", "web-1", T0 + 90_500)
    assert list(event.receipts) == [
        Receipt(TOPIC, "o", T0, 1, SequenceSet([3])),
        Receipt(TOPIC, "p", T0, 3, SequenceSet([0, 4])),
        Receipt(TOPIC, "p", T0 + MINUTE_MS, 1, SequenceSet([0])),
        Receipt("views", "p", T0, 1, SequenceSet([7])),
    ]


def test_what_was_taken_is_not_taken_again() -> None:
    book = ReceiptBook("billing", "web-1")
    book.note(TOPIC, header(0))
    assert len(book.take()) == 1
    assert not book.take()
    book.note(TOPIC, header(0))
    assert counted(book.take()) == [Receipt(TOPIC, "p", T0, 1, SequenceSet([0]))]


def test_no_two_events_of_a_book_are_alike() -> None:
    book = ReceiptBook("billing", "web-1", clock=lambda: 1.0)
    book.note(TOPIC, header(0))
    first = book.take()
    book.note(TOPIC, header(0))
    assert first != book.take()


@pytest.mark.parametrize(
    "stranger",
    [
        None,
        "p:0:1",
        b"",
        b"1763712000000:1",
        header(0) + b"x",
        header(0)[:-1],
        header(SEQUENCE_MAX)[:-1] + b"9",
        header(0) + b"0" * 5_000,
        b"\xff:0:1",
    ],
)
def test_a_message_without_a_mark_of_ours_is_left_out(stranger: bytes | str | None) -> None:
    book = ReceiptBook("billing", "web-1")
    book.note(TOPIC, stranger)
    assert not book.take()
    # Nor is it counted where the mark's first part is known.
    book.note(TOPIC, header(1))
    book.note(TOPIC, stranger)
    assert counted(book.take()) == [Receipt(TOPIC, "p", T0, 1, SequenceSet([1]))]


def test_a_book_is_full_when_it_keeps_too_much_and_empty_when_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receipts_module, "KEPT_BYTES_MAX", 1_000_000)
    book = ReceiptBook("billing", "web-1")
    assert not book.is_full
    noted = 0
    while not book.is_full:
        # Each has a page of its own, as a forger would have it.
        book.note(TOPIC, header(noted * 4_096 % SEQUENCE_MAX, producer=f"p{noted}"))
        noted += 1
    assert 500 < noted < 3_000
    assert len(counted(book.take())) == noted
    assert not book.is_full


def test_many_messages_of_few_producers_leave_a_book_empty_enough() -> None:
    book = ReceiptBook("billing", "web-1")
    for sequence in range(100_000):
        book.note(TOPIC, header(sequence))
        assert not book.is_full


@pytest.mark.parametrize(("tier", "consumer"), [("", "c"), ("t", ""), ("t" * 301, "c")])
def test_a_book_has_names(tier: str, consumer: str) -> None:
    with pytest.raises(ConfigurationError, match="has no name"):
        ReceiptBook(tier, consumer)


fates = st.lists(
    st.tuples(
        st.sampled_from([TOPIC, "views"]),
        st.integers(0, 3 * MINUTE_MS),
        # Whether the producer was told that it is in the log, and who received it how often.
        st.booleans(),
        st.lists(st.integers(0, 2), max_size=4),
        # Which consumers tell what they received, after this message.
        st.sets(st.integers(0, 2)),
    ),
    max_size=60,
)


@given(fates)
def test_whoever_receives_what_how_often_the_numbers_are_exact(
    fates: list[tuple[str, int, bool, list[int], set[int]]],
) -> None:
    stamper = Stamper("api-1")
    books = [ReceiptBook("billing", f"web-{number}") for number in range(3)]
    records: list[AuditRecord] = []
    published = lost = repeats = uncovered = 0
    for topic, time_ms, is_acknowledged, receivers, tellers in fates:
        mark = stamper.stamp(topic, T0 + time_ms)
        (stamper.acknowledged if is_acknowledged else stamper.failed)(topic, mark)
        for number in receivers:
            books[number].note(topic, encode_mark(mark))
        for number in tellers:
            records += books[number].take()
        published += is_acknowledged
        lost += is_acknowledged and not receivers
        uncovered += bool(receivers) and not is_acknowledged
        repeats += max(0, len(receivers) - 1)
    for book in books:
        records += book.take()
    records += stamper.rest()
    assert compared(record.value for record in records) == (published, lost, repeats, uncovered)
