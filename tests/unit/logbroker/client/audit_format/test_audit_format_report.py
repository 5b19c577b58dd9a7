import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.audit_format.mark import SEQUENCE_MAX, TIME_MS_MAX
from logbroker.client.audit_format.report import (
    COUNT_MAX,
    READ_BYTES_MAX,
    REPORT_BYTES_MAX,
    REPORT_PAGES_MAX,
    PublishedReport,
    ReceivedCount,
    ReceivedReport,
    decode,
    encode_published,
    encode_received,
)
from logbroker.client.audit_format.sequence_set import SequenceSet

MINUTE_MS = 60_000
START_MS = 1_763_712_000_000
PUBLISHED = PublishedReport(
    "clicks", "api-1/4f2a9c", START_MS, START_MS + MINUTE_MS, SequenceSet([0, 1, 2, 9])
)
RECEIVED = ReceivedReport(
    "billing",
    "web-1/77",
    START_MS + 90_123,
    (
        ReceivedCount("clicks", "api-1/4f2a9c", START_MS, 5, SequenceSet([0, 1, 9])),
        ReceivedCount("views", "api-2/111111", START_MS - MINUTE_MS, 1, SequenceSet([70_000])),
    ),
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
times = st.integers(0, TIME_MS_MAX - MINUTE_MS)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
sets = st.sets(st.integers(0, SEQUENCE_MAX), min_size=1, max_size=5).map(SequenceSet)


@st.composite
def received_counts(draw: st.DrawFn) -> ReceivedCount:
    numbers = draw(sets)
    count = len(numbers) + draw(st.integers(0, 3))
    return ReceivedCount(draw(topics), draw(names), draw(times), count, numbers)


def scattered(chance: random.Random) -> SequenceSet:
    """An incompressible set with more pages than one part: half of these numbers."""
    numbers = SequenceSet()
    for start in range(0, 2_200_000, 16):
        bits = chance.getrandbits(16)
        for place in range(16):
            if bits >> place & 1:
                numbers.add(start + place)
    return numbers


def test_a_published_report_is_encoded_as_the_docs_describe_it() -> None:
    (record,) = encode_published(PUBLISHED)
    assert record.key == b"api-1/4f2a9c"
    assert b" " not in record.value
    assert list(json.loads(record.value).items()) == [
        ("kind", "published"),
        ("topic", "clicks"),
        ("producer", "api-1/4f2a9c"),
        ("windowStart", "2025-11-21T08:00:00.000Z"),
        ("windowEnd", "2025-11-21T08:01:00.000Z"),
        ("count", 4),
        ("sequences", SequenceSet([0, 1, 2, 9]).encode()),
    ]


def test_a_received_report_is_encoded_as_the_docs_describe_it() -> None:
    (record,) = encode_received(RECEIVED)
    assert record.key == b"billing"
    event = json.loads(record.value)
    assert list(event) == ["kind", "tier", "consumer", "time", "received"]
    assert event["time"] == "2025-11-21T08:01:30.123Z"
    assert list(event["received"][0].items()) == [
        ("topic", "clicks"),
        ("producer", "api-1/4f2a9c"),
        ("windowStart", "2025-11-21T08:00:00.000Z"),
        ("count", 5),
        ("sequences", SequenceSet([0, 1, 9]).encode()),
    ]


@given(topics, names, times, st.integers(1, MINUTE_MS), sets)
def test_a_published_report_round_trips(
    topic: str, producer: str, start_ms: int, length_ms: int, numbers: SequenceSet
) -> None:
    published = PublishedReport(topic, producer, start_ms, start_ms + length_ms, numbers)
    (record,) = encode_published(published)
    assert decode(record.value) == published
    assert list(encode_published(published)) == [record]


@given(names, names, times, st.lists(received_counts(), min_size=1, max_size=5))
def test_a_received_report_round_trips(
    tier: str, consumer: str, time_ms: int, counted: list[ReceivedCount]
) -> None:
    (record,) = encode_received(ReceivedReport(tier, consumer, time_ms, tuple(counted)))
    assert decode(record.value) == ReceivedReport(tier, consumer, time_ms, tuple(counted))


def test_empty_reports_make_no_record() -> None:
    assert not list(encode_published(PublishedReport("t", "p", 0, MINUTE_MS, SequenceSet())))
    assert not list(encode_received(ReceivedReport("tier", "consumer", 0, ())))


def test_an_incompressible_set_is_split() -> None:
    numbers = scattered(random.Random(1))
    larger = numbers.copy()
    larger.add_range(2_300_000, 2_400_000)
    records = list(encode_published(PublishedReport("t", "p", 0, MINUTE_MS, larger)))
    assert len(records) > 1
    assert all(len(record.value) <= REPORT_BYTES_MAX for record in records)
    united = SequenceSet()
    for record in records:
        part = decode(record.value)
        assert isinstance(part, PublishedReport)
        united.update(part.sequences)
    assert united == larger


@pytest.mark.long
def test_counts_are_split_by_size_and_nothing_counts_twice() -> None:
    chance = random.Random(2)
    counted = tuple(
        ReceivedCount("t", f"p{number}", 0, len(numbers) + number, numbers)
        for number, numbers in enumerate([scattered(chance) for _ in range(3)])
    )
    records = list(encode_received(ReceivedReport("tier", "consumer", 0, counted)))
    assert len(records) > 1
    assert all(len(record.value) <= REPORT_BYTES_MAX for record in records)
    found = [each for record in records for each in counts_of(record.value)]
    for whole in counted:
        parts = [each for each in found if each.producer == whole.producer]
        assert sum(each.count for each in parts) == whole.count
        assert sum(len(each.sequences) for each in parts) == len(whole.sequences)
        united = SequenceSet()
        for each in parts:
            united.update(each.sequences)
        assert united == whole.sequences


def test_compressible_counts_are_split_by_pages() -> None:
    full = SequenceSet()
    full.add_range(0, SEQUENCE_MAX + 1)
    counted = [ReceivedCount("t", f"p{each}", 0, SEQUENCE_MAX + 1, full) for each in range(3)]
    records = list(encode_received(ReceivedReport("tier", "consumer", 0, counted)))
    assert len(records) == 2
    for record in records:
        assert sum(each.sequences.pages for each in counts_of(record.value)) <= REPORT_PAGES_MAX


def counts_of(value: bytes) -> tuple[ReceivedCount, ...]:
    event = decode(value)
    assert isinstance(event, ReceivedReport)
    return tuple(event.counts)


def published_json(**changes: Any) -> bytes:
    (record,) = encode_published(PUBLISHED)
    return json.dumps(json.loads(record.value) | changes).encode()


def received_json(**changes: Any) -> bytes:
    """The report with changes to its first count."""
    (record,) = encode_received(RECEIVED)
    event = json.loads(record.value)
    event["received"][0] |= changes
    return json.dumps(event).encode()


def test_unknown_members_are_ignored() -> None:
    assert decode(published_json(more=1)) == PUBLISHED
    assert decode(received_json(more=1)) == RECEIVED


REFUSED = {
    "no value": None,
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'"\xff"',
    "no object": b"[]",
    "a number": b"7",
    "too deep": b"[" * 100_000,
    "a number without end": published_json().replace(b": 4,", b": " + b"4" * 5_000 + b","),
    "another kind": published_json(kind="sent"),
    "an invalid kind": published_json(kind=["published"]),
    "too large": published_json(more="x" * READ_BYTES_MAX),
    "no topic": published_json(topic=None),
    "a topic of no such name": published_json(topic="a/b"),
    "no producer": published_json(producer=""),
    "a long producer": published_json(producer="p" * 301),
    "a lone surrogate": published_json(producer="\ud800"),
    "a window that is a number": published_json(windowStart=START_MS),
    "an invalid day": published_json(windowStart="2025-02-30T08:00:00.000Z"),
    "digits of another script": published_json(windowStart="٢025-11-21T08:00:00.000Z"),
    "no milliseconds": published_json(windowStart="2025-11-21T08:00:00Z"),
    "before 1970": published_json(
        windowStart="1969-12-31T23:59:00.000Z", windowEnd="1970-01-01T00:00:00.000Z"
    ),
    "an end before the start": published_json(windowEnd="2025-11-21T07:59:00.000Z"),
    "a window without length": published_json(windowEnd="2025-11-21T08:00:00.000Z"),
    "more than a day": published_json(windowEnd="2025-11-22T08:00:00.001Z"),
    "another count": published_json(count=5),
    "a count that is no whole number": published_json(count=4.0),
    "true for one": published_json(count=True, sequences=SequenceSet([3]).encode()),
    "no set": published_json(sequences="bits"),
    "no receipts": json.dumps({"kind": "received", "tier": "t", "consumer": "c"}).encode(),
    "receipts that are none": received_json().replace(b"[{", b"[7,{"),
    "fewer than their sequences": received_json(count=2),
    "an empty receipt": received_json(count=0, sequences=SequenceSet().encode()),
    "a count beyond all": received_json(count=COUNT_MAX + 1),
    "a negative count": received_json(count=-1),
    "an invalid time": json.dumps(json.loads(received_json()) | {"time": "now"}).encode(),
    "an empty tier": json.dumps(json.loads(received_json()) | {"tier": ""}).encode(),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_other_values_are_no_report(value: bytes | None) -> None:
    assert decode(value) is None


@pytest.mark.parametrize("whole", [published_json(), received_json()], ids=["sent", "received"])
def test_a_truncated_report_is_no_report(whole: bytes) -> None:
    for end in range(len(whole)):
        assert decode(whole[:end]) is None


def test_many_small_texts_with_large_sets_are_rejected() -> None:
    full = SequenceSet()
    full.add_range(0, SEQUENCE_MAX + 1)
    (record,) = encode_received(
        ReceivedReport("tier", "consumer", 0, [ReceivedCount("t", "p", 0, SEQUENCE_MAX + 1, full)])
    )
    event = json.loads(record.value)
    once = event["received"]
    event["received"] = once * 2
    assert decode(json.dumps(event).encode()) is not None
    event["received"] = once * 3
    assert decode(json.dumps(event).encode()) is None


@given(st.binary(max_size=200))
def test_random_bytes_are_no_report(value: bytes) -> None:
    assert decode(value) is None
