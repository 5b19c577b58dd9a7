"""Avro values, written by fastavro's writer, as the JSON that receivers of webhooks get."""

import io
import json
import math
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from logbroker.schemas.avro.decoding_cost import DECIMAL_BYTES_MAX, DEPTH_MAX, EMPTY_FIELDS_MAX
from logbroker.schemas.avro.json_values import JSON_BYTES_MAX
from logbroker.schemas.decoder import VALUE_BYTES_MAX, AvroDecoder
from logbroker.schemas.lookup import SchemaLookup
from logbroker.schemas.reading_errors import (
    SchemaRegistryUnavailable,
    UndecodableValue,
    UnknownSchema,
)
from tests.support.schemas.registry_stub import RegistryStub


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


@pytest.fixture
def decoder(registry: RegistryStub) -> Iterator[AvroDecoder]:
    decoder = AvroDecoder(SchemaLookup(registry.url))
    yield decoder
    decoder.close()


def record(*fields: tuple[str, Any], name: str = "Event") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


def avro(schema: Any, value: Any) -> bytes:
    target = io.BytesIO()
    schemaless_writer(target, parse_schema(schema), value)
    return target.getvalue()


def number(value: int) -> bytes:
    """A long in Avro."""
    return avro("long", value)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + payload


def as_json(registry: RegistryStub, decoder: AvroDecoder, schema: Any, value: Any) -> bytes:
    schema_id = registry.add(json.dumps(schema))
    return decoder.to_json(framed(schema_id, avro(schema, value)))


def test_a_record_becomes_an_object_in_the_order_of_its_fields(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    schema = record(
        ("id", "string"),
        ("count", "long"),
        ("ratio", "double"),
        ("ok", "boolean"),
        ("tags", {"type": "map", "values": "int"}),
        ("list", {"type": "array", "items": "string"}),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        ("inner", record(("x", "int"), name="Inner")),
    )
    value = {
        "id": "é\n",
        "count": -(2**63),
        "ratio": 0.1,
        "ok": True,
        "tags": {"b": 1, "a": 2},
        "list": ["x"],
        "kind": "B",
        "inner": {"x": 7},
    }
    assert as_json(registry, decoder, schema, value).decode() == (
        '{"id":"é\\n","count":-9223372036854775808,"ratio":0.1,"ok":true,"tags":{"b":1,"a":2},'
        '"list":["x"],"kind":"B","inner":{"x":7}}'
    )


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (["null", "string"], "x", '"x"'),
        (["null", "string"], None, "null"),
        ("bytes", b"\x00\xff", '"AP8="'),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", '"YWJj"'),
        (logical("bytes", "decimal", precision=9, scale=2), Decimal("-12.30"), '"-12.30"'),
        (logical("bytes", "decimal", precision=9, scale=8), Decimal("1E-8"), '"0.00000001"'),
        (
            logical("fixed", "decimal", precision=9, scale=2, name="D", size=8),
            Decimal("1.05"),
            '"1.05"',
        ),
        (logical("int", "date"), date(2026, 11, 21), '"2026-11-21"'),
        (
            logical("long", "timestamp-millis"),
            datetime(2026, 11, 21, 18, 0, 0, 5000, UTC),
            '"2026-11-21T18:00:00.005Z"',
        ),
        (
            logical("long", "timestamp-micros"),
            datetime(2026, 11, 21, 18, 0, 0, 5, UTC),
            '"2026-11-21T18:00:00.000005Z"',
        ),
        (logical("long", "timestamp-millis"), -1, '"1969-12-31T23:59:59.999Z"'),
        (logical("long", "local-timestamp-millis"), 0, '"1970-01-01T00:00:00.000"'),
        (logical("int", "time-millis"), time_of_day(1, 2, 3, 4000), '"01:02:03.004000"'),
        (logical("string", "uuid"), UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ("double", math.nan, '"NaN"'),
        ("double", math.inf, '"Infinity"'),
        ("float", -math.inf, '"-Infinity"'),
        ({"type": "array", "items": "double"}, [1.5, math.nan], '[1.5,"NaN"]'),
    ],
)
def test_what_json_does_not_have_becomes_text(
    registry: RegistryStub, decoder: AvroDecoder, kind: Any, value: Any, text: str
) -> None:
    encoded = as_json(registry, decoder, record(("v", kind)), {"v": value})
    assert encoded.decode() == f'{{"v":{text}}}'


def test_a_schema_is_asked_for_once(registry: RegistryStub, decoder: AvroDecoder) -> None:
    schema = record(("id", "string"))
    schema_id = registry.add(json.dumps(schema))
    value = framed(schema_id, avro(schema, {"id": "x"}))
    assert not decoder.knows(value)
    assert decoder.to_json(value) == b'{"id":"x"}'
    assert decoder.knows(value)
    assert decoder.to_json(value) == b'{"id":"x"}'
    assert registry.asked == [f"/schemas/ids/{schema_id}"]


def test_known_schemas_need_no_registry(registry: RegistryStub, decoder: AvroDecoder) -> None:
    schema = record(("id", "string"))
    value = framed(registry.add(json.dumps(schema)), avro(schema, {"id": "x"}))
    decoder.to_json(value)
    registry.stop()
    assert decoder.to_json(value) == b'{"id":"x"}'
    with pytest.raises(SchemaRegistryUnavailable):
        decoder.to_json(framed(99, b""))


def test_references_are_followed(registry: RegistryStub, decoder: AvroDecoder) -> None:
    street = record(("name", "string"), name="a.Street")
    registry.register("street", 1, json.dumps(street))
    place = record(("street", "a.Street"), name="a.Place")
    registry.register("place/x", 3, json.dumps(place), [("street", 1)])
    schema = record(("from", "a.Place"), ("to", ["null", "a.Street"]))
    schema_id = registry.add(json.dumps(schema), [("place/x", 3), ("street", 1)])
    payload = avro("string", "High") + number(1) + avro("string", "Low")
    expected = b'{"from":{"street":{"name":"High"}},"to":{"name":"Low"}}'
    assert decoder.to_json(framed(schema_id, payload)) == expected


def test_a_union_of_records_is_read_as_the_one_it_holds(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    registry.register("a", 1, json.dumps(record(("x", "int"), name="n.A")))
    schema_id = registry.add('["n.A", "string"]', [("a", 1)])
    assert decoder.to_json(framed(schema_id, number(0) + number(5))) == b'{"x":5}'
    with pytest.raises(UndecodableValue, match="not a record"):
        decoder.to_json(framed(schema_id, number(1) + avro("string", "x")))


def test_an_unknown_id_is_not_asked_for_again_at_once(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    value = framed(7, b"")
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="id 7"):
            decoder.to_json(value)
    assert decoder.knows(value)
    assert registry.asked == ["/schemas/ids/7"]


@pytest.mark.parametrize("value", [b"", b"{}", b"\0", b"\0\0\0\1", b"\1\0\0\0\1x"])
def test_what_is_not_framed_is_refused_without_a_question(
    registry: RegistryStub, decoder: AvroDecoder, value: bytes
) -> None:
    registry.add(json.dumps(record(("id", "string"))))
    assert not AvroDecoder.is_avro(value)
    assert decoder.knows(value)
    with pytest.raises(UndecodableValue):
        decoder.to_json(value)
    assert registry.asked == []


def test_a_record_cut_anywhere_is_refused(registry: RegistryStub, decoder: AvroDecoder) -> None:
    schema = record(
        ("id", "string"), ("n", "double"), ("tags", {"type": "array", "items": "string"})
    )
    whole = avro(schema, {"id": "abc", "n": 2.5, "tags": ["x", "yy"]})
    schema_id = registry.add(json.dumps(schema))
    decoder.to_json(framed(schema_id, whole))
    for end in range(len(whole)):
        with pytest.raises(UndecodableValue):
            decoder.to_json(framed(schema_id, whole[:end]))
    with pytest.raises(UndecodableValue, match="1 bytes follow"):
        decoder.to_json(framed(schema_id, whole + b"\0"))


@pytest.mark.parametrize(
    "schema",
    [
        "no json",
        '"string"',
        '{"type":"record"}',
        "[]",
        "7",
        '{"type":"record","name":"R","fields":[{"name":"x","type":"gone.G"}]}',
        '{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"R"}}]}',
        "[" * 100_000,
    ],
)
def test_a_schema_that_gives_no_record_is_refused_each_time(
    registry: RegistryStub, decoder: AvroDecoder, schema: str
) -> None:
    schema_id = registry.add(schema)
    for _ in range(2):
        with pytest.raises(UndecodableValue):
            decoder.to_json(framed(schema_id, b"\x02x"))
    assert len(registry.asked) == 1


def test_a_schema_of_another_language_is_refused(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    registry.answer("/schemas/ids/5", 200, {"schema": "message M {}", "schemaType": "PROTOBUF"})
    with pytest.raises(UndecodableValue, match="PROTOBUF"):
        decoder.to_json(framed(5, b"\x02x"))


LINKED = record(("next", ["null", "Event"]))


def test_records_inside_each_other_are_read_to_a_bound(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    schema_id = registry.add(json.dumps(LINKED))
    deepest = decoder.to_json(framed(schema_id, number(1) * (DEPTH_MAX - 1) + number(0)))
    assert deepest.count(b"next") == DEPTH_MAX
    # Read without a bound, this many end the process.
    for depth in (DEPTH_MAX, VALUE_BYTES_MAX - 1):
        with pytest.raises(UndecodableValue, match="inside each other"):
            decoder.to_json(framed(schema_id, number(1) * depth + number(0)))


@pytest.mark.parametrize(
    "fields",
    [
        [("self", "Event")],
        [("all", {"type": "array", "items": "null"})],
        [("all", {"type": "array", "items": record(("n", "null"), name="Empty")})],
        [("all", {"type": "array", "items": {"type": "array", "items": "null"}})],
        [(f"n{number}", "null") for number in range(EMPTY_FIELDS_MAX + 1)],
    ],
)
def test_schemas_whose_values_take_no_bytes_are_refused(
    registry: RegistryStub, decoder: AvroDecoder, fields: list[tuple[str, Any]]
) -> None:
    schema_id = registry.add(json.dumps(record(*fields)))
    with pytest.raises(UndecodableValue):
        decoder.to_json(framed(schema_id, number(2**62) + number(0)))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("string", number(2**62)),
        ("bytes", number(-5)),
        ({"type": "array", "items": "int"}, number(2**62)),
        ({"type": "array", "items": "int"}, number(-(2**62)) + number(2**62)),
        ({"type": "map", "values": "int"}, number(2**62) + b"\x02a\x02" * 10),
        (["null", "int"], number(7)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, number(9)),
        (logical("long", "timestamp-millis"), number(2**62)),
        (logical("int", "time-millis"), number(2**30)),
        (logical("string", "uuid"), avro("string", "no")),
        ("string", number(1) + b"\xff"),
        ("long", b"\xff" * 1_000),
    ],
)
def test_bytes_that_promise_too_much_are_refused(
    registry: RegistryStub, decoder: AvroDecoder, kind: Any, payload: bytes
) -> None:
    schema_id = registry.add(json.dumps(record(("v", kind))))
    with pytest.raises(UndecodableValue):
        decoder.to_json(framed(schema_id, payload))


@pytest.mark.parametrize(
    "kind", ["bytes", {"type": "array", "items": logical("bytes", "decimal", precision=9)}]
)
def test_a_decimal_is_bounded(
    registry: RegistryStub, decoder: AvroDecoder, kind: str | dict[str, Any]
) -> None:
    if kind == "bytes":
        kind = logical("bytes", "decimal", precision=2_000)
        prefix = b""
    else:
        prefix = number(1)
    schema_id = registry.add(json.dumps(record(("v", kind))))
    # A million of them would take a minute and a half.
    for size in (DECIMAL_BYTES_MAX + 1, VALUE_BYTES_MAX - 10):
        payload = prefix + number(size) + b"\x7f" * size
        with pytest.raises(UndecodableValue, match="decimal"):
            decoder.to_json(framed(schema_id, payload))


def test_a_decimal_of_a_huge_scale_stays_short(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    kind = logical("bytes", "decimal", precision=10**9, scale=10**9)
    schema_id = registry.add(json.dumps(record(("v", kind))))
    assert decoder.to_json(framed(schema_id, b"\x02\x05")) == b'{"v":"5E-1000000000"}'


def test_long_names_do_not_make_long_json_of_few_bytes(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    inner = record(("n" * 1_000, "int"), name="Inner")
    schema_id = registry.add(json.dumps(record(("all", {"type": "array", "items": inner}))))
    fitting = decoder.to_json(framed(schema_id, number(1_000) + b"\0" * 1_001))
    assert 1_000_000 < len(fitting) < JSON_BYTES_MAX
    with pytest.raises(UndecodableValue, match="as JSON"):
        decoder.to_json(framed(schema_id, number(10_000) + b"\0" * 10_001))


@pytest.mark.long
def test_records_of_a_byte_each_are_refused_before_they_are_made(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    """A million dictionaries would take a gigabyte, and ten seconds to find that out."""
    empty = [("e0", record(name="E")), *((f"e{n}", "E") for n in range(1, EMPTY_FIELDS_MAX))]
    inner = record(("z", "boolean"), *empty, name="Inner")
    schema_id = registry.add(json.dumps(record(("all", {"type": "array", "items": inner}))))
    count = VALUE_BYTES_MAX - 100
    value = framed(schema_id, number(count) + b"\1" * count + b"\0")
    decoder.to_json(framed(schema_id, number(1) + b"\1\0"))
    tracemalloc.start()
    with pytest.raises(UndecodableValue, match="as JSON"):
        decoder.to_json(value)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * len(value)


def test_counting_does_not_change_the_json(registry: RegistryStub, decoder: AvroDecoder) -> None:
    short = record(("text", "string"), ("n", ["null", "double"]))
    long = record(("text", "string"), ("n", ["null", "double"]), ("m" * 5_000, "string"))
    value = {"text": "é" * 50_000, "n": math.inf}
    plain = as_json(registry, decoder, short, value)
    counted = as_json(registry, decoder, long, {**value, "m" * 5_000: "x"})
    assert counted == plain[:-1] + b',"' + b"m" * 5_000 + b'":"x"}'


def test_a_value_that_is_too_long_is_refused(registry: RegistryStub, decoder: AvroDecoder) -> None:
    schema_id = registry.add(json.dumps(record(("v", "string"))))
    size = VALUE_BYTES_MAX - 3
    assert len(decoder.to_json(framed(schema_id, number(size) + b"x" * size))) == size + 8
    with pytest.raises(UndecodableValue, match="longer"):
        decoder.to_json(framed(schema_id, number(size + 1) + b"x" * (size + 1)))


WIDE = record(
    ("id", "string"),
    ("next", ["null", "Event"]),
    ("price", logical("bytes", "decimal", precision=8, scale=2)),
    ("when", logical("long", "timestamp-micros")),
    ("many", {"type": "array", "items": ["int", "double", {"type": "map", "values": "bytes"}]}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
)


@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_refused(payload: bytes) -> None:
    decoder = _wide_decoder()
    try:
        text = decoder.to_json(framed(1, payload))
    except UndecodableValue:
        return
    assert set(json.loads(text)) == {field["name"] for field in WIDE["fields"]}
    assert decoder.to_json(framed(1, payload)) == text


_decoders: list[AvroDecoder] = []


def _wide_decoder() -> AvroDecoder:
    if not _decoders:
        with RegistryStub() as registry:
            registry.add(json.dumps(WIDE))
            _decoders.append(AvroDecoder(SchemaLookup(registry.url)))
            with pytest.raises(UndecodableValue):
                _decoders[0].to_json(framed(1, b""))
        _decoders[0].close()
    return _decoders[0]


def test_deeply_nested_schemas_do_not_end_the_process(
    registry: RegistryStub, decoder: AvroDecoder
) -> None:
    """Each schema refers to the one before, so that no text is deep, but the type is."""
    kind: Any = "int"
    places: list[tuple[str, int]] = []
    for level in range(100):
        for _ in range(100):
            kind = {"type": "array", "items": kind}
        name = f"n.R{level}"
        registry.register(name, 1, json.dumps(record(("v", kind), name=name)), places)
        kind, places = name, [(name, 1)]
    schema_id = registry.add(json.dumps(record(("v", kind))), places)
    with pytest.raises(UndecodableValue, match="cannot be used"):
        decoder.to_json(framed(schema_id, number(1) * 20_000))
