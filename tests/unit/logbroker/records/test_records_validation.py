import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, LargeBatch
from logbroker.records import validation, validator
from logbroker.records.batch import HEADER_BYTES
from logbroker.records.record import Record, decode_records
from logbroker.records.varint import encode_varint
from tests.support.kafka.record_batches import (
    LogRecord,
    batch_packed,
    framed,
    octets,
    record_body,
)

ANY_TIME = (-(2**63), 2**63 - 1)
BASE_MS = 1_700_000_000_000

Validate = Callable[..., int]


@pytest.fixture(params=["pure", "compiled"])
def validate(request: pytest.FixtureRequest) -> Validate:
    """Both forms of the function, with the arguments that most tests leave out."""
    return defaulted(compiled() if request.param == "compiled" else validation.validate_records)


def compiled() -> Validate:
    if not validator.IS_COMPILED:
        reason = "validation.py is not compiled: `make check` does it where there is a C compiler"
        assert not (os.environ.get("CI") and shutil.which("cc")), reason
        pytest.skip(reason)
    return validator.validate_records


def defaulted(function: Validate) -> Validate:
    def call(
        records: bytes,
        count: int,
        *,
        base_timestamp: int = BASE_MS,
        times: tuple[int, int] = ANY_TIME,
        key_required: bool = False,
        **options: object,
    ) -> int:
        source = memoryview(b"header" + records)
        return function(source, 6, count, base_timestamp, *times, key_required, **options)

    return call


def encoded(*records: LogRecord) -> bytes:
    return b"".join(framed(record_body(record)) for record in records)


def test_the_largest_timestamp_is_returned(validate: Validate) -> None:
    records = encoded(LogRecord(0, 5), LogRecord(1, 90, b"k", b"v"), LogRecord(2, -7))
    assert validate(records, 3) == BASE_MS + 90
    assert validate(records, 3, base_timestamp=-1000) == -1
    assert validate(encoded(LogRecord(0, 0)), 1, base_timestamp=-1) == -1


def test_fields_of_any_length_are_valid(validate: Validate) -> None:
    for size in (0, 1, 63, 64, 127, 128, 8191, 8192, 70_000, 2**21):
        value = b"x" * size
        records = [
            LogRecord(0, 0, value, value, ((value, value), (value, None))),
            LogRecord(1, 0, None, None),
        ]
        assert validate(encoded(*records), 2) == BASE_MS


@pytest.mark.parametrize("value_bytes", [1, 200, 9000, 65_520, 65_530, 70_000])
def test_a_batch_of_many_parts_is_read_to_its_end(validate: Validate, value_bytes: int) -> None:
    pauses: list[None] = []
    count = 1_000_000 // (value_bytes + 100)
    many = [LogRecord(index, index, b"k", b"v" * value_bytes) for index in range(count)]
    records = encoded(*many)
    assert validate(records, count, pause=lambda: pauses.append(None)) == BASE_MS + count - 1
    assert len(records) // 65_536 <= len(pauses) <= 2 * len(records) // 8_192 + 2
    assert validate(records, count) == BASE_MS + count - 1
    with pytest.raises(InvalidRecord, match="1 bytes follow"):
        validate(records + b"\0", count)
    with pytest.raises(InvalidRecord, match=f"record {count - 1} is malformed"):
        validate(records[:-1], count)


def test_headers_are_limited_and_read_in_parts(validate: Validate) -> None:
    pauses: list[None] = []
    records = encoded(LogRecord(0, 0), LogRecord(1, 0, None, None, ((b"h", None),) * 10_000))
    assert validate(records, 2, pause=lambda: pauses.append(None)) == BASE_MS
    assert len(pauses) >= 2 + len(records) // 65_536
    assert validate(records, 2, headers_max=10_000) == BASE_MS
    with pytest.raises(LargeBatch, match="more than 9999 headers"):
        validate(records, 2, headers_max=9_999)


MALFORMED = {
    "40 bytes 0xff": b"\xff" * 40,
    "a negative length": encode_varint(-1) + bytes(20),
    "a length beyond the batch": encode_varint(21) + bytes(20),
    "a length of two billion": encode_varint(2**31 - 1) + bytes(20),
    "a length shorter than the fields": encode_varint(5) + record_body(LogRecord(0, 0, b"k")),
    "a length longer than the fields": framed(record_body(LogRecord(0, 0, b"k")) + b"\0"),
    "a key beyond the record": framed(b"\0\0\0" + encode_varint(50) + bytes(20)),
    "a key of length -2": framed(b"\0\0\0" + encode_varint(-2) + bytes(20)),
    "a value of length -2": framed(b"\0\0\0\1" + encode_varint(-2) + bytes(20)),
    "headers that are missing": framed(b"\0\0\0\1\1" + encode_varint(9) + bytes(4)),
    "two billion headers": framed(b"\0\0\0\1\1" + encode_varint(2**31 - 1) + bytes(20)),
    "a negative number of headers": framed(b"\0\0\0\1\1" + encode_varint(-3) + bytes(4)),
    "a header without a key": framed(b"\0\0\0\1\1\2" + octets(None) + octets(b"v")),
    "a header value of length -2": framed(b"\0\0\0\1\1\2" + octets(b"k") + encode_varint(-2)),
    "a length of more than 32 bits": b"\xff\xff\xff\xff\x1f" + bytes(20),
    "a length of six bytes": b"\x80\x80\x80\x80\x80\0" + bytes(20),
    "a timestamp of eleven bytes": framed(b"\0" + b"\x80" * 10 + b"\0" * 5),
    "a timestamp of more than 64 bits": framed(b"\0" + b"\xff" * 9 + b"\2" + b"\0" * 5),
    "a record without a field": encode_varint(0) + bytes(20),
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("following", [b"", b"x" * 100_000])
def test_a_malformed_record_is_rejected(validate: Validate, name: str, following: bytes) -> None:
    with pytest.raises(InvalidRecord):
        validate(MALFORMED[name] + following, 1)


def test_the_index_of_a_malformed_record_is_reported(validate: Validate) -> None:
    with pytest.raises(InvalidRecord, match="record 1 is malformed") as raised:
        validate(encoded(LogRecord(0, 0), LogRecord(1, 0, b"key"))[:-1], 2)
    ((index, why),) = raised.value.record_errors
    assert (index, why) == (1, "its length is 9; 8 bytes follow")


def test_a_count_that_cannot_fit_is_rejected_before_a_record_is_read(validate: Validate) -> None:
    with pytest.raises(InvalidRecord, match="recordsCount is 2147483647"):
        validate(b"\xff" * 100, 2**31 - 1)


def test_more_or_fewer_records_than_counted_are_rejected(validate: Validate) -> None:
    records = encoded(LogRecord(0, 0, b"a key"), LogRecord(1, 0, b"a key"))
    with pytest.raises(InvalidRecord, match="record 2 is malformed"):
        validate(records, 3)
    with pytest.raises(InvalidRecord, match="bytes follow the 1 records"):
        validate(records, 1)


def test_every_record_with_another_offset_is_reported(validate: Validate) -> None:
    records = encoded(LogRecord(0, 0), LogRecord(2, 0), LogRecord(1, 0), LogRecord(3, 0))
    with pytest.raises(InvalidRecord, match="2 of 4 records") as raised:
        validate(records, 4)
    assert raised.value.record_errors == [
        (1, "its offset delta is 2; expected: 1"),
        (2, "its offset delta is 1; expected: 2"),
    ]


def test_keys_can_be_required(validate: Validate) -> None:
    records = encoded(LogRecord(0, 0, b""), LogRecord(1, 0, None), LogRecord(2, 0, b"k"))
    assert validate(records, 3) == BASE_MS
    with pytest.raises(InvalidRecord, match="1 of 3 records") as raised:
        validate(records, 3, key_required=True)
    assert [index for index, _ in raised.value.record_errors] == [1]


def test_no_more_than_a_thousand_invalid_records_are_listed(validate: Validate) -> None:
    records = encoded(*(LogRecord(7, 0, None) for _ in range(3000)))
    with pytest.raises(InvalidRecord, match="2999 of 3000 records are invalid") as raised:
        validate(records, 3000)
    assert len(raised.value.record_errors) == 1000


def test_timestamps_are_limited_but_may_be_missing(validate: Validate) -> None:
    times = (BASE_MS - 5, BASE_MS + 5)
    inside = encoded(LogRecord(0, -5), LogRecord(1, 5), LogRecord(2, -1 - BASE_MS))
    assert validate(inside, 3, times=times) == BASE_MS + 5
    for delta in (-6, 6):
        with pytest.raises(InvalidTimestamp, match=f"its timestamp is {BASE_MS + delta}"):
            validate(encoded(LogRecord(0, delta)), 1, times=times)


@pytest.mark.parametrize(
    ("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (1, 2**63 - 1), (-2, -(2**63))]
)
def test_a_timestamp_of_more_than_64_bits_is_rejected(
    validate: Validate, base: int, delta: int
) -> None:
    with pytest.raises(InvalidRecord, match="exceeds 64 bits"):
        validate(encoded(LogRecord(0, delta)), 1, base_timestamp=base)


small = st.integers(-3, 3)
fields = st.none() | st.binary(max_size=4)
log_records = st.builds(
    LogRecord,
    small,
    st.integers(-(2**63), 2**63 - 1) | small,
    fields,
    fields,
    st.lists(st.tuples(fields, fields), max_size=2).map(tuple),
)
plain = st.lists(log_records, max_size=4).map(
    lambda records: encoded(
        *(record._replace(offset_delta=index) for index, record in enumerate(records))
    )
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Records with bytes replaced, inserted or removed."""
    records = bytearray(draw(plain))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(records)))
        records[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(records)


@given(damaged() | st.binary(max_size=60), st.integers(0, 5), small, st.booleans())
@example(b"\xff" * 40, 1, 0, False)
def test_whatever_is_accepted_decodes_in_full_and_both_forms_agree(
    records: bytes, count: int, base: int, key_required: bool
) -> None:
    arguments = (memoryview(records), 0, count, base, -4, 2**40, key_required)
    outcome = result(validation.validate_records, arguments)
    if validator.IS_COMPILED:
        assert result(validator.validate_records, arguments) == outcome
    packed = batch_packed(
        records, base_timestamp=base, record_count=count, last_offset_delta=count - 1
    )
    if isinstance(outcome, int):
        decoded = decode_records(packed)
        assert [record.offset for record in decoded] == list(range(count))
        assert max([-1, *(record.timestamp_ms for record in decoded)]) == outcome
        assert all(record.key is not None for record in decoded) or not key_required
    else:
        assert not is_valid(packed, key_required=key_required)


def result(
    function: Validate, arguments: tuple[object, ...]
) -> int | tuple[type[Exception], str, object]:
    try:
        return function(*arguments)
    except (InvalidRecord, InvalidTimestamp) as error:
        return type(error), str(error), error.record_errors


def is_valid(packed: bytes, *, key_required: bool) -> bool:
    """Whether the decoder finds nothing wrong with a batch, and its records follow the rules."""
    try:
        decoded = decode_records(packed)
    except CorruptBatch:
        return False
    return all(
        record.offset == index
        and (record.timestamp_ms == -1 or -4 <= record.timestamp_ms <= 2**40)
        and (record.key is not None or not key_required)
        for index, record in enumerate(decoded)
    )


def test_the_compiled_form_is_of_this_text() -> None:
    compiled()
    name = validator.module_name(Path(validation.__file__).read_bytes())
    assert validator.validate_records is not validation.validate_records
    assert name in repr(__import__(f"logbroker.records.{name}", fromlist=["x"]))


def test_another_text_has_another_name() -> None:
    assert validator.module_name(b"a") != validator.module_name(b"b")


def test_a_batch_of_records_is_read_behind_its_header() -> None:
    packed = batch_packed(encoded(LogRecord(0, 3, b"k", b"v")), base_timestamp=5)
    arguments = (memoryview(packed), HEADER_BYTES, 1, 5, *ANY_TIME, False)
    assert validation.validate_records(*arguments) == 8
    assert decode_records(packed) == [Record(0, 8, b"k", b"v", ())]


def test_the_decompressed_size_is_limited_by_ratio_and_in_total() -> None:
    assert validator.plain_bytes_max(1) == 16 * 2**20
    assert validator.plain_bytes_max(10**6) == 2 * 10**7
    assert validator.plain_bytes_max(10**8) == 128 * 2**20
