"""Parsing of records, and quarantine of unreadable ones."""

from datetime import UTC, datetime

import pyarrow as pa

from spark_jobs.errors import UndecodableRecord
from spark_jobs.jobs.parsing import UNREAD_REASON, parse_batch

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FIELDS = pa.schema([("number", pa.int64()), ("twice", pa.string())])


def records(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["events"] * len(values),
            "partition": pa.array([3] * len(values), pa.int32()),
            "offset": list(range(len(values))),
            "timestamp": pa.array([NOON] * len(values), pa.timestamp("us", tz="UTC")),
            "value": pa.array(values, pa.binary()),
        }
    )


def read(value: bytes | None, offset: int) -> tuple[int, str]:
    if value is None or not value.isdigit():
        raise UndecodableRecord(f"{value!r} is no number")
    return int(value), f"{offset}:{value.decode() * 2}"


def test_a_parsed_record_keeps_its_position_without_its_value() -> None:
    batch = parse_batch(records(b"1", b"2"), ("value", "offset"), FIELDS, read)
    assert batch.drop_columns(["timestamp"]).to_pylist() == [
        {
            "topic": "events",
            "partition": 3,
            "offset": offset,
            "number": offset + 1,
            "twice": f"{offset}:{offset + 1}{offset + 1}",
            UNREAD_REASON: None,
            "value": None,
        }
        for offset in (0, 1)
    ]
    assert batch.column("timestamp").to_pylist() == [NOON, NOON]


def test_an_unreadable_record_keeps_its_value_and_has_a_reason() -> None:
    batch = parse_batch(records(b"1", b"x", None), ("value", "offset"), FIELDS, read)
    assert batch.column("number").to_pylist() == [1, None, None]
    assert batch.column(UNREAD_REASON).to_pylist() == [
        None,
        "b'x' is no number",
        "None is no number",
    ]
    assert batch.column("value").to_pylist() == [None, b"x", None]


def test_a_field_may_be_named_like_a_column_of_the_quarantine() -> None:
    fields = pa.schema([("reason", pa.string())])
    batch = parse_batch(records(b"1", b"2"), ("value",), fields, lambda value: (value.decode(),))
    assert batch.column("reason").to_pylist() == ["1", "2"]
    assert batch.column(UNREAD_REASON).to_pylist() == [None, None]


def test_an_empty_batch_stays_empty() -> None:
    batch = parse_batch(records(), ("value", "offset"), FIELDS, read)
    assert batch.num_rows == 0
    assert batch.schema.names[-2:] == [UNREAD_REASON, "value"]
