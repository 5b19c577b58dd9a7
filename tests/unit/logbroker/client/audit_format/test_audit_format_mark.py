import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.client.audit_format.mark import (
    PRODUCER_BYTES_MAX,
    SEQUENCE_MAX,
    TIME_MS_MAX,
    Mark,
    MarkSpan,
    encode_marks,
    find_mark_header,
    parse_mark,
)
from tests.support.kafka.audit_marks import encode_mark

producers = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=75)


@given(producers, st.integers(0, TIME_MS_MAX), st.integers(0, SEQUENCE_MAX))
def test_a_mark_round_trips(producer: str, window_ms: int, sequence: int) -> None:
    mark = Mark(producer, window_ms, sequence)
    assert parse_mark(encode_mark(mark)) == mark


def test_a_mark_is_plain_text() -> None:
    header = b"api-1/4f2a9c:1763712000000:17"
    assert encode_mark(Mark("api-1/4f2a9c", 1_763_712_000_000, 17)) == header
    assert parse_mark(b"one:two:0:1") == Mark("one:two", 0, 1)


def test_the_marks_of_a_span_are_those_of_its_sequences() -> None:
    marks = encode_marks(MarkSpan("p", 60_000, 9, 11))
    assert marks == [encode_mark(Mark("p", 60_000, 9)), encode_mark(Mark("p", 60_000, 10))]


REFUSED = {
    "none": None,
    "text": "p:0:1",
    "empty": b"",
    "one part": b"17",
    "two parts": b"0:17",
    "no producer": b":0:17",
    "no window": b"p::17",
    "no sequence": b"p:0:",
    "a sign": b"p:0:-1",
    "a space": b"p:0: 1",
    "an underscore": b"p:0:1_0",
    "digits of another script": "p:0:٣".encode(),
    "a window beyond all": b"p:%d:0" % (TIME_MS_MAX + 1),
    "a sequence beyond all": b"p:0:%d" % (SEQUENCE_MAX + 1),
    "a sequence with many digits": b"p:0:" + b"0" * 5_000,
    "no UTF-8": b"\xff:0:1",
    "a long producer": b"p" * (PRODUCER_BYTES_MAX + 1) + b":0:1",
}


@pytest.mark.parametrize("header", REFUSED.values(), ids=REFUSED)
def test_other_headers_are_no_mark(header: bytes | str | None) -> None:
    assert parse_mark(header) is None


def test_the_header_with_the_mark_is_the_first_of_its_name() -> None:
    headers = [("server", b"api-1"), ("audit", b"p:0:1"), ("audit", b"p:0:2")]
    assert find_mark_header(headers) == b"p:0:1"
    assert find_mark_header([("server", b"api-1")]) is None
    assert find_mark_header([("audit", None)]) is None
    assert find_mark_header(None) is None
