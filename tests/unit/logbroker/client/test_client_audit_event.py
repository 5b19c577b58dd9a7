import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.audit_event import (
    COUNT_MAX,
    EVENT_BYTES_MAX,
    EVENT_PAGES_MAX,
    READ_BYTES_MAX,
    Published,
    Receipt,
    Received,
    decode,
    encode_published,
    encode_received,
)
from logbroker.client.audit_mark import SEQUENCE_MAX, TIME_MS_MAX
from logbroker.client.sequence_set import SequenceSet

MINUTE_MS = 60_000
START_MS = 1_763_712_000_000
PUBLISHED = Published(
    "clicks", "api-1/4f2a9c", START_MS, START_MS + MINUTE_MS, SequenceSet([0, 1, 2, 9])
)
RECEIVED = Received(
    "billing",
    "web-1/77",
    START_MS + 90_123,
    (
        Receipt("clicks", "api-1/4f2a9c", START_MS, 5, SequenceSet([0, 1, 9])),
        Receipt("views", "api-2/111111", START_MS - MINUTE_MS, 1, SequenceSet([70_000])),
    ),
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
times = st.integers(0, TIME_MS_MAX - MINUTE_MS)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
sets = st.sets(st.integers(0, SEQUENCE_MAX), min_size=1, max_size=5).map(SequenceSet)


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    numbers = draw(sets)
    count = len(numbers) + draw(st.integers(0, 3))
    return Receipt(draw(topics), draw(names), draw(times), count, numbers)


def scattered(chance: random.Random) -> SequenceSet:
    """A set that cannot be packed, of more pages than a part may have: half of these numbers."""
    numbers = SequenceSet()
    for start in range(0, 2_200_000, 16):
        bits = chance.getrandbits(16)
        for place in range(16):
            if bits >> place & 1:
                numbers.add(start + place)
    return numbers


def test_an_event_of_a_producer_reads_as_the_docs_describe_it() -> None:
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


def test_an_event_of_a_consumer_reads_as_the_docs_describe_it() -> None:
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
def test_what_was_published_comes_back(
    topic: str, producer: str, start_ms: int, length_ms: int, numbers: SequenceSet
) -> None:
    published = Published(topic, producer, start_ms, start_ms + length_ms, numbers)
    (record,) = encode_published(published)
    assert decode(record.value) == published
    assert list(encode_published(published)) == [record]


@given(names, names, times, st.lists(receipts(), min_size=1, max_size=5))
def test_what_was_received_comes_back(
    tier: str, consumer: str, time_ms: int, counted: list[Receipt]
) -> None:
    (record,) = encode_received(Received(tier, consumer, time_ms, tuple(counted)))
    assert decode(record.value) == Received(tier, consumer, time_ms, tuple(counted))


def test_nothing_makes_no_event() -> None:
    assert not list(encode_published(Published("t", "p", 0, MINUTE_MS, SequenceSet())))
    assert not list(encode_received(Received("tier", "consumer", 0, ())))


def test_a_set_that_cannot_be_packed_is_published_in_parts() -> None:
    numbers = scattered(random.Random(1))
    larger = numbers.copy()
    larger.add_range(2_300_000, 2_400_000)
    records = list(encode_published(Published("t", "p", 0, MINUTE_MS, larger)))
    assert len(records) > 1
    assert all(len(record.value) <= EVENT_BYTES_MAX for record in records)
    united = SequenceSet()
    for record in records:
        part = decode(record.value)
        assert isinstance(part, Published)
        united.update(part.sequences)
    assert united == larger


@pytest.mark.long
def test_receipts_are_split_by_size_with_every_message_and_repeat_in_just_one() -> None:
    chance = random.Random(2)
    counted = tuple(
        Receipt("t", f"p{number}", 0, len(numbers) + number, numbers)
        for number, numbers in enumerate([scattered(chance) for _ in range(3)])
    )
    records = list(encode_received(Received("tier", "consumer", 0, counted)))
    assert len(records) > 1
    assert all(len(record.value) <= EVENT_BYTES_MAX for record in records)
    found = [each for record in records for each in receipts_of(record.value)]
    for whole in counted:
        parts = [each for each in found if each.producer == whole.producer]
        assert sum(each.count for each in parts) == whole.count
        assert sum(len(each.sequences) for each in parts) == len(whole.sequences)
        united = SequenceSet()
        for each in parts:
            united.update(each.sequences)
        assert united == whole.sequences


def test_receipts_that_pack_well_are_split_so_that_reading_them_is_bounded_too() -> None:
    full = SequenceSet()
    full.add_range(0, SEQUENCE_MAX + 1)
    counted = [Receipt("t", f"p{each}", 0, SEQUENCE_MAX + 1, full) for each in range(3)]
    records = list(encode_received(Received("tier", "consumer", 0, counted)))
    assert len(records) == 2
    for record in records:
        assert sum(each.sequences.pages for each in receipts_of(record.value)) <= EVENT_PAGES_MAX


def receipts_of(value: bytes) -> tuple[Receipt, ...]:
    event = decode(value)
    assert isinstance(event, Received)
    return tuple(event.receipts)


def published_json(**changes: Any) -> bytes:
    (record,) = encode_published(PUBLISHED)
    return json.dumps(json.loads(record.value) | changes).encode()


def received_json(**changes: Any) -> bytes:
    """With the changes made to the first of its receipts."""
    (record,) = encode_received(RECEIVED)
    event = json.loads(record.value)
    event["received"][0] |= changes
    return json.dumps(event).encode()


def test_members_that_are_not_ours_are_passed_over() -> None:
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
    "a kind that is none": published_json(kind=["published"]),
    "too large": published_json(more="x" * READ_BYTES_MAX),
    "no topic": published_json(topic=None),
    "a topic of no such name": published_json(topic="a/b"),
    "no producer": published_json(producer=""),
    "a long producer": published_json(producer="p" * 301),
    "a lone surrogate": published_json(producer="\ud800"),
    "a window that is a number": published_json(windowStart=START_MS),
    "a day that is none": published_json(windowStart="2025-02-30T08:00:00.000Z"),
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
    "a time that is none": json.dumps(json.loads(received_json()) | {"time": "now"}).encode(),
    "a tier that is none": json.dumps(json.loads(received_json()) | {"tier": ""}).encode(),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_is_none_of_ours_is_passed_over(value: bytes | None) -> None:
    assert decode(value) is None


@pytest.mark.parametrize("whole", [published_json(), received_json()], ids=["sent", "received"])
def test_an_event_cut_anywhere_is_passed_over(whole: bytes) -> None:
    for end in range(len(whole)):
        assert decode(whole[:end]) is None


def test_many_small_sets_that_expand_to_much_are_refused_together() -> None:
    full = SequenceSet()
    full.add_range(0, SEQUENCE_MAX + 1)
    (record,) = encode_received(
        Received("tier", "consumer", 0, [Receipt("t", "p", 0, SEQUENCE_MAX + 1, full)])
    )
    event = json.loads(record.value)
    once = event["received"]
    event["received"] = once * 2
    assert decode(json.dumps(event).encode()) is not None
    event["received"] = once * 3
    assert decode(json.dumps(event).encode()) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_passed_over(value: bytes) -> None:
    assert decode(value) is None
