"""Conversion of raw values to JSON."""

import json
import pickle

import pytest

from logbroker.schemas.lookup import FoundSchema
from spark_jobs.errors import UndecodableRecord
from spark_jobs.jobs.avro_values import JsonConverter, MissingSchema

SCHEMA = {"type": "record", "name": "Follow", "fields": [{"name": "user", "type": "string"}]}
AVRO = b"\0\0\0\0\x01\x04ab"
VALUES = JsonConverter({1: FoundSchema(json.dumps(SCHEMA), ()), 2: MissingSchema("it is gone")})


def test_avro_is_converted_by_its_schema_and_json_is_unchanged() -> None:
    values = pickle.loads(pickle.dumps(VALUES))
    assert values(b"k", AVRO, 1, b"acc_1") == (b"k", 1, '{"user":"ab"}', "acc_1")
    assert values(None, b'{"user": "ab"} ', None, None) == (None, None, '{"user": "ab"} ', None)
    assert values(b"k", None, None, None) == (b"k", None, None, None)


@pytest.mark.parametrize(
    ("value", "schema_id", "reason"),
    [
        (AVRO + b"more", 1, "schema 1: "),
        (b"\0\0\0\0\x02", 2, "schema 2: it is gone"),
        (b"\0\0\0\0\x03", 3, "schema 3: not looked up"),
        (b'{"rate": NaN}', None, "NaN is not valid in JSON"),
        (b'{"rate": -Infinity}', None, "-Infinity is not valid in JSON"),
        (b'{"user": "\xff"}', None, "neither Avro nor JSON"),
        (b"\xef\xbb\xbf{}", None, "neither Avro nor JSON"),
        (b"[" * 100_000, None, "neither Avro nor JSON"),
        (b"[]", None, "not a JSON object"),
        (b"", None, "neither Avro nor JSON"),
    ],
)
def test_other_values_have_a_reason(value: bytes, schema_id: int | None, reason: str) -> None:
    with pytest.raises(UndecodableRecord) as raised:
        VALUES(b"k", value, schema_id, None)
    assert reason in raised.value.reason
