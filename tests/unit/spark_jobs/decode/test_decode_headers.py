from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from spark_jobs.contracts import HEADERS as SPARKS_HEADERS
from spark_jobs.decode import decode
from spark_jobs.decode.header_lists import HEADERS
from tests.support.kafka.record_batches import LogRecord, RawHeaders, batch_of

Found = list[list[tuple[str, bytes | None]] | None]


def found(headers: list[RawHeaders], **limits: Any) -> Found:
    records = [LogRecord(n, 0, b"k", b"v", each) for n, each in enumerate(headers)]
    chunks = decode(batch_of(records), start=0, end=len(headers), wanted={"headers"}, **limits)
    lists: Found = []
    for chunk in chunks:
        assert chunk.headers is not None
        assert chunk.headers.type == HEADERS
        chunk.headers.validate(full=True)
        lists += [
            each and [(header["key"], header["value"]) for header in each]
            for each in chunk.headers.to_pylist()
        ]
    return lists


def expected(headers: list[RawHeaders]) -> Found:
    return [
        [(key.decode(), value) for key, value in each if key is not None] or None
        for each in headers
    ]


FIVE: RawHeaders = (
    (b"event-id", b"evt_1"),
    (b"event-type", b"follow.created"),
    (b"origin", b"a"),
    (b"server", None),
    (b"audit", b"x" * 70),
)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 500])
def test_records_with_equal_numbers_of_headers_keep_them(count: int) -> None:
    assert found([FIVE] * count) == expected([FIVE] * count)


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=120),
    st.sampled_from([1, 400, 2**20]),
)
def test_records_with_any_number_of_headers_keep_their_order(
    counts: list[int], chunk_bytes: int
) -> None:
    headers: list[RawHeaders] = [
        tuple((b"h%d" % nth, b"%d" % (n * nth)) for nth in range(count))
        for n, count in enumerate(counts)
    ]
    assert found(headers, chunk_bytes=chunk_bytes) == expected(headers)


def test_one_record_with_many_headers_keeps_them() -> None:
    many: RawHeaders = tuple((b"key-%d" % n, b"v" * (n % 80)) for n in range(20_000))
    headers = [FIVE] * 40 + [many] + [()] * 3 + [FIVE] * 2
    assert found(headers) == expected(headers)


def test_a_header_key_that_is_not_utf_8_is_decoded_as_in_java() -> None:
    lists = found([((b"gr\xf6\xdfe", b"1"), ("größe".encode(), b"2"))])
    assert lists == [[("gr��e", b"1"), ("größe", b"2")]]


def test_the_headers_column_has_sparks_type() -> None:
    assert to_arrow_type(SPARKS_HEADERS, timezone="UTC") == HEADERS
