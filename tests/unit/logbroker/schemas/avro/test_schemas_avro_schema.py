"""Schemas out of texts: which are refused and why, and when two are the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.schemas.avro.canonical_text import canonical_text
from logbroker.schemas.avro.parser import DEPTH_MAX, NAMES_MAX
from logbroker.schemas.avro.schema import REFERENCES_MAX, TEXT_BYTES_MAX, parse
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.errors import InvalidSchema
from tests.support.property_examples import examples
from tests.support.schemas.avro_pairs import SchemaMaker


def nothing(reference: Reference) -> SchemaText:
    raise InvalidSchema(f"{reference.name} is not there")


def text_of(written: Any) -> str:
    return parse(SchemaText(json.dumps(written)), nothing).text.text


def error_message(text: str) -> str:
    with pytest.raises(InvalidSchema) as refused:
        parse(SchemaText(text), nothing)
    return str(refused.value)


def record(*fields: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **others}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (5, "Invalid schema at /: 5 is not a type."),
        (None, "Invalid schema at /: None is not a type."),
        ({}, "Invalid schema at /: {} has no 'type'."),
        ("foo", "Invalid schema at /: the type 'foo' is not defined."),
        ({"type": "map"}, "Invalid schema at /: {'type': 'map'} has no 'values'."),
        (["int", ["null"]], "Invalid schema at /1: a union immediately within a union."),
        (["int", {"type": "int"}], "Invalid schema at /1: the union has int twice."),
        (
            record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
            "Invalid schema at /: the record R has the field 'a' twice.",
        ),
        (
            record({"name": "a", "type": {"type": "array", "items": "Q"}}),
            "Invalid schema at /fields/0/type/items: the type 'Q' is not defined.",
        ),
        (record({"name": "1a", "type": "int"}), "invalid field name: '1a'"),
        (record({"type": "int"}), "invalid field name: None"),
        (record("int"), "'int' is not a field."),  # type: ignore[arg-type]
        ({"type": "record", "name": "R"}, "the record R has no list of fields"),
        ({"type": "record", "fields": []}, "a record without a name"),
        (record(name="1R"), "invalid name: '1R'"),
        (record(namespace="a..b"), "invalid name: ''"),
        (record(namespace="a" * 999), "has 1001 characters; allowed are 1000"),
        (record(namespace=5), "invalid namespace: 5"),
        (record(name="int"), "'int' is the name of a primitive type"),
        (record(aliases="Q"), "invalid aliases: 'Q'"),
        (record({"name": "a", "type": "int", "order": "up"}), "invalid order: 'up'"),
        ({"type": "fixed", "name": "F", "size": -1}, "invalid size of F: -1"),
        ({"type": "fixed", "name": "F", "size": True}, "invalid size of F: True"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "the enum E has a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["1"]}, "invalid symbol: '1'"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "'B' is not a symbol"),
        (
            [{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}],
            "Invalid schema at /1: the type F is defined twice.",
        ),
        (
            record({"name": "a", "type": "int", "default": "x"}),
            "invalid default: field 'a' of R: 'x' is not of type int",
        ),
        (record({"name": "a", "type": "int", "default": 2**31}), "2147483648 is not of type int"),
        (record({"name": "a", "type": "boolean", "default": 1}), "1 is not of type boolean"),
        (record({"name": "a", "type": "bytes", "default": "€"}), "'€' is not of type bytes"),
        (
            record({"name": "a", "type": {"type": "array", "items": "int"}, "default": [1, "x"]}),
            "'x' is not of type int",
        ),
        (
            record({"name": "a", "type": ["null", "int"], "default": "x"}),
            "'x' is not of type union",
        ),
    ],
)
def test_what_is_no_schema_is_refused_with_what_is_wrong(written: Any, problem: str) -> None:
    assert problem in error_message(json.dumps(written))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "[NaN]",
        '"int" x',
        '{"type":"int","x":1e999}',
        '{"type":"int","x":"\\ud800"}',
    ],
)
def test_what_is_no_json_in_utf8_is_refused(text: str) -> None:
    assert "JSON" in error_message(text)


@pytest.mark.parametrize("default", [None, 3])
def test_a_default_may_be_of_any_branch_of_a_union(default: Any) -> None:
    assert text_of(record({"name": "a", "type": ["null", "int"], "default": default}))


def nested(depth: int) -> Any:
    written: Any = "int"
    for _ in range(depth):
        written = {"type": "array", "items": written}
    return written


def test_types_may_nest_up_to_a_bound() -> None:
    assert text_of(nested(DEPTH_MAX))
    assert "are nested more than" in error_message(json.dumps(nested(DEPTH_MAX + 1)))


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 400_000,
        '{"type":' * 100_000,
        '{"type":"int","x":' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"type":"int","x":' + "9" * 10_000 + "}",
    ],
)
def test_a_bomb_is_refused(bomb: str) -> None:
    assert error_message(bomb)


def test_a_default_that_fits_nowhere_is_judged_in_no_time() -> None:
    """Each level could be either record: as many ways through it as 2 to the power of 60."""
    branch = ["null", "A", "B"]
    second = {"type": "record", "name": "B", "fields": [{"name": "n", "type": branch}]}
    first = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "n", "type": ["null", "A", second]}],
    }
    default: Any = 5
    for _ in range(60):
        default = {"n": default}
    assert "is not of type union" in error_message(
        json.dumps(record({"name": "a", "type": [first, "B"], "default": default}))
    )


@pytest.mark.long
def test_defaults_that_could_be_of_too_many_branches_are_refused() -> None:
    branches = [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(1_000)]
    inner = {"type": "record", "name": "I", "fields": [{"name": "u", "type": branches}]}
    others = [{"name": f"b{n}", "type": "I", "default": {"u": "xy"}} for n in range(1_000)]
    nested = json.dumps(record({"name": "a", "type": inner}, *others))
    assert "is not of type union" in error_message(nested)
    fine = [*branches, "string"]
    inner = {"type": "record", "name": "I", "fields": [{"name": "u", "type": fine}]}
    assert "too large to check" in error_message(
        json.dumps(record({"name": "a", "type": inner}, *others))
    )


def test_a_text_may_have_a_megabyte() -> None:
    frame = len('{"type":"int","doc":""}')
    assert parse(
        SchemaText('{"type":"int","doc":"%s"}' % ("x" * (TEXT_BYTES_MAX - frame))), nothing
    )
    too_long = '{"type":"int","doc":"%s"}' % ("ü" * (TEXT_BYTES_MAX // 2))
    assert f"{TEXT_BYTES_MAX + frame} bytes" in error_message(too_long)


def test_a_text_that_grows_when_normalized_stays_within_the_limit() -> None:
    grown = '{"type":"int","far":[' + ",".join(["1e15"] * (TEXT_BYTES_MAX // 10)) + "]}"
    assert len(grown) < TEXT_BYTES_MAX
    assert f"max {TEXT_BYTES_MAX}" in error_message(grown)


def test_references_count_as_what_a_schema_takes() -> None:
    far = Reference("Far", "s" * TEXT_BYTES_MAX, 1)
    defined = SchemaText('{"type":"fixed","name":"Far","size":1}')
    with pytest.raises(InvalidSchema, match=f"max {TEXT_BYTES_MAX}"):
        parse(SchemaText('"Far"', (far,)), lambda _: defined)


def test_names_are_bounded() -> None:
    def union(count: int) -> Any:
        return [{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(count)]

    assert text_of(union(NAMES_MAX))
    assert f"more than {NAMES_MAX} types" in error_message(json.dumps(union(NAMES_MAX + 1)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int", {"type": "int"}),
        ({"type": {"type": "array", "items": "int"}}, {"items": "int", "type": "array"}),
        (record(name="a.b.R"), record(namespace="a.b")),
        (record(namespace=""), record()),
        (
            record({"name": "a", "type": ["null", "a.R"]}, namespace="a"),
            record({"type": ["null", "R"], "name": "a"}, name="a.R"),
        ),
        (
            record({"name": "a", "type": "int", "order": "ascending"}),
            record({"name": "a", "type": "int"}),
        ),
        (record(aliases=["a.Q"], namespace="a"), record(aliases=["Q"], name="a.R")),
        (record(x={"a": 1, "b": 2}, y=3), record(y=3, x={"b": 2, "a": 1})),
    ],
)
def test_the_same_schema_written_differently_is_the_same(one: Any, other: Any) -> None:
    assert text_of(one) == text_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(), record(doc="d")),
        (record(), record(aliases=["Q"])),
        (record(), record(owner="me")),
        (record(), record(namespace="a")),
        (
            record({"name": "a", "type": "int", "default": 1}),
            record({"name": "a", "type": "int", "default": 2}),
        ),
        (
            record({"name": "a", "type": "int"}, {"name": "b", "type": "int"}),
            record({"name": "b", "type": "int"}, {"name": "a", "type": "int"}),
        ),
        (["int", "null"], ["null", "int"]),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}),
    ],
)
def test_what_a_reader_or_a_person_would_miss_makes_another_schema(one: Any, other: Any) -> None:
    assert text_of(one) != text_of(other)


def test_the_text_is_written_as_people_do() -> None:
    written = {
        "fields": [{"default": 1, "type": "int", "doc": "d", "name": "a"}],
        "name": "shop.Order",
        "type": "record",
        "owner": "me",
        "doc": "An order",
    }
    assert text_of(written) == (
        '{"type":"record","name":"Order","namespace":"shop","doc":"An order",'
        '"fields":[{"name":"a","type":"int","doc":"d","default":1}],"owner":"me"}'
    )


@given(st.integers(0, 2**40))
@examples(150)
def test_normalizing_a_normalized_text_changes_nothing(seed: int) -> None:
    for written in SchemaMaker(seed).pair():
        text = canonical_text(written)
        assert text_of(json.loads(text)) == text


def test_a_type_without_a_namespace_cannot_be_named_from_within_one() -> None:
    """As fastavro has it, which reads the records."""
    inner = {"type": "fixed", "name": "F", "namespace": "", "size": 1}
    written = record({"name": "a", "type": inner}, namespace="x")
    assert '"namespace":""' in text_of(written)
    for name in ("F", ".F"):
        beside = {**written, "fields": [*written["fields"], {"name": "b", "type": name}]}
        assert "is not defined" in error_message(json.dumps(beside))


ADDRESS = SchemaText('{"type":"record","name":"shop.Address","fields":[]}')
ADDRESS_AT = Reference("shop.Address", "address", 1)
ORDER = json.dumps(record({"name": "to", "type": "shop.Address"}))


def test_a_referenced_type_can_be_used() -> None:
    parsed = parse(SchemaText(ORDER, (ADDRESS_AT,)), {ADDRESS_AT: ADDRESS}.__getitem__)
    assert parsed.text.references == (ADDRESS_AT,)
    assert '"type":"shop.Address"' in parsed.text.text


def test_a_reference_to_a_type_that_is_not_in_its_schema_is_refused() -> None:
    wrong = Reference("shop.Bill", "address", 1)
    with pytest.raises(InvalidSchema, match=r"does not define the referenced type 'shop.Bill'"):
        parse(SchemaText(ORDER, (wrong,)), {wrong: ADDRESS}.__getitem__)


def test_references_of_references_are_followed_once() -> None:
    """Two that refer to the same third: a diamond."""
    left = SchemaText('{"type":"array","items":"shop.Address"}', (ADDRESS_AT,))
    named = SchemaText(
        '{"type":"record","name":"L","fields":[{"name":"a","type":"shop.Address"}]}', (ADDRESS_AT,)
    )
    known = {
        ADDRESS_AT: ADDRESS,
        Reference("L", "left", 1): named,
        Reference("shop.Address", "right", 1): left,
    }
    used = SchemaText('["L","shop.Address"]', tuple(known))
    assert parse(used, known.__getitem__).text.text == '["L","shop.Address"]'


def test_references_are_bounded() -> None:
    def resolve(reference: Reference) -> SchemaText:
        further = (Reference(f"R{reference.version + 1}", "s", reference.version + 1),)
        return SchemaText(json.dumps(record(name=f"R{reference.version}")), further)

    with pytest.raises(InvalidSchema, match=f"needs more than {REFERENCES_MAX} others"):
        parse(SchemaText('"R1"', (Reference("R1", "s", 1),)), resolve)


def test_only_normalizing_sorts_references() -> None:
    other = Reference("F", "f", 1)
    known = {ADDRESS_AT: ADDRESS, other: SchemaText('{"type":"fixed","name":"F","size":1}')}
    given = SchemaText('"int"', (ADDRESS_AT, other, other))
    assert parse(given, known.__getitem__).text.references == given.references
    normal = parse(given, known.__getitem__, normalize=True)
    assert normal.text.references == (other, ADDRESS_AT)
