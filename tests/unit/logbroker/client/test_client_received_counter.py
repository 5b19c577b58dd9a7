from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client import received_counter as counter_module
from logbroker.client.audit_format.mark import SEQUENCE_MAX, Mark, encode_marks
from logbroker.client.audit_format.report import AuditRecord, ReceivedCount, ReceivedReport, decode
from logbroker.client.audit_format.sequence_set import SequenceSet
from logbroker.client.received_counter import ReceivedCounter
from logbroker.client.stamper import Stamper
from logbroker.errors import ConfigurationError
from tests.support.kafka.audit_counts import compared
from tests.support.kafka.audit_marks import encode_mark

MINUTE_MS = 60_000
T0 = 1_763_712_000_000
TOPIC = "clicks"


def received(records: Iterable[AuditRecord]) -> list[ReceivedReport]:
    found = []
    for record in records:
        report = decode(record.value)
        assert isinstance(report, ReceivedReport)
        assert record.key == report.tier.encode()
        found.append(report)
    return found


def counted(records: Iterable[AuditRecord]) -> list[ReceivedCount]:
    return [count for report in received(records) for count in report.counts]


def header(sequence: int, producer: str = "p", window_ms: int = T0) -> bytes:
    return encode_mark(Mark(producer, window_ms, sequence))


def test_messages_are_messagesby_topic_producer_and_window() -> None:
    counter = ReceivedCounter("billing", "web-1", clock=lambda: 1_763_712_090.5)
    counter.count_message(TOPIC, header(0))
    counter.count_message("views", header(7))
    counter.count_message(TOPIC, header(4))
    counter.count_message(TOPIC, header(0, window_ms=T0 + MINUTE_MS))
    counter.count_message(TOPIC, header(3, producer="o"))
    counter.count_message(TOPIC, header(0))
    (report,) = received(counter.take_reports())
    assert (report.tier, report.consumer, report.time_ms) == ("billing", "web-1", T0 + 90_500)
    assert list(report.counts) == [
        ReceivedCount(TOPIC, "o", T0, 1, SequenceSet([3])),
        ReceivedCount(TOPIC, "p", T0, 3, SequenceSet([0, 4])),
        ReceivedCount(TOPIC, "p", T0 + MINUTE_MS, 1, SequenceSet([0])),
        ReceivedCount("views", "p", T0, 1, SequenceSet([7])),
    ]


def test_each_message_is_reported_once() -> None:
    counter = ReceivedCounter("billing", "web-1")
    counter.count_message(TOPIC, header(0))
    assert len(counter.take_reports()) == 1
    assert not counter.take_reports()
    counter.count_message(TOPIC, header(0))
    assert counted(counter.take_reports()) == [ReceivedCount(TOPIC, "p", T0, 1, SequenceSet([0]))]


def test_no_two_reports_are_equal() -> None:
    counter = ReceivedCounter("billing", "web-1", clock=lambda: 1.0)
    counter.count_message(TOPIC, header(0))
    first = counter.take_reports()
    counter.count_message(TOPIC, header(0))
    assert first != counter.take_reports()


@pytest.mark.parametrize(
    "invalid",
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
def test_a_message_without_a_valid_mark_is_ignored(invalid: bytes | str | None) -> None:
    counter = ReceivedCounter("billing", "web-1")
    counter.count_message(TOPIC, invalid)
    assert not counter.take_reports()
    # Also after a valid mark with the same first part.
    counter.count_message(TOPIC, header(1))
    counter.count_message(TOPIC, invalid)
    assert counted(counter.take_reports()) == [ReceivedCount(TOPIC, "p", T0, 1, SequenceSet([1]))]


def test_a_counter_is_full_with_too_much_memory_until_reports_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counter_module, "MEMORY_BYTES_MAX", 1_000_000)
    counter = ReceivedCounter("billing", "web-1")
    assert not counter.is_full
    messages = 0
    while not counter.is_full:
        # Each needs a page of its own, as a forger would send them.
        counter.count_message(
            TOPIC, header(messages * 4_096 % SEQUENCE_MAX, producer=f"p{messages}")
        )
        messages += 1
    assert 500 < messages < 3_000
    assert len(counted(counter.take_reports())) == messages
    assert not counter.is_full


def test_many_messages_of_few_producers_do_not_fill_a_counter() -> None:
    counter = ReceivedCounter("billing", "web-1")
    for sequence in range(100_000):
        counter.count_message(TOPIC, header(sequence))
        assert not counter.is_full


@pytest.mark.parametrize(("tier", "consumer"), [("", "c"), ("t", ""), ("t" * 301, "c")])
def test_empty_and_long_names_are_rejected(tier: str, consumer: str) -> None:
    with pytest.raises(ConfigurationError, match="invalid name"):
        ReceivedCounter(tier, consumer)


fates = st.lists(
    st.tuples(
        st.sampled_from([TOPIC, "views"]),
        st.integers(0, 3 * MINUTE_MS),
        # Whether it was acknowledged to the producer, and which consumers received it.
        st.booleans(),
        st.lists(st.integers(0, 2), max_size=4),
        # Which consumers report after this message.
        st.sets(st.integers(0, 2)),
    ),
    max_size=60,
)


@given(fates)
def test_the_counts_are_exact_whichever_consumers_receive_a_message(
    fates: list[tuple[str, int, bool, list[int], set[int]]],
) -> None:
    stamper = Stamper("api-1")
    counters = [ReceivedCounter("billing", f"web-{number}") for number in range(3)]
    records: list[AuditRecord] = []
    published = lost = duplicates = uncovered = 0
    for topic, time_ms, is_acknowledged, receivers, reporters in fates:
        span = stamper.next_marks(topic, T0 + time_ms, 1)
        record = stamper.record_acknowledged if is_acknowledged else stamper.record_failed
        record(topic, span)
        for number in receivers:
            counters[number].count_message(topic, *encode_marks(span))
        for number in reporters:
            records += counters[number].take_reports()
        published += is_acknowledged
        lost += is_acknowledged and not receivers
        uncovered += bool(receivers) and not is_acknowledged
        duplicates += max(0, len(receivers) - 1)
    for counter in counters:
        records += counter.take_reports()
    records += stamper.remaining_reports()
    assert compared(record.value for record in records) == (published, lost, duplicates, uncovered)
