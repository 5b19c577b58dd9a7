"""Which schemas read what others wrote: against Java's checker, fastavro's reader and by hand."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.schemas.avro.compatibility import Compatibility, incompatibilities
from logbroker.schemas.avro.parser import AvroParser
from logbroker.schemas.avro.resolution import PAIRS_MAX, mismatches
from tests.support.property_examples import examples
from tests.support.schemas.avro_pairs import SchemaMaker

GOLDEN = Path(__file__).parents[4] / "golden" / "avro" / "compatibility.json"


def problems_of(reader: Any, writer: Any) -> list[str]:
    found = mismatches(AvroParser().read(reader), AvroParser().read(writer))
    return [f"{each.path}: {each.problem} ({each.kind})" for each in found]


def record(*fields: dict[str, Any], name: str = "R", **others: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def field(name: str, kind: Any, **others: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **others}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_java_says_the_same() -> None:
    answers = json.loads(GOLDEN.read_text())
    assert {bool(each["kinds"]) for each in answers} == {True, False}
    for each in answers:
        found = mismatches(AvroParser().read(each["reader"]), AvroParser().read(each["writer"]))
        ours = {mismatch.kind for mismatch in found}
        assert bool(ours) == bool(each["kinds"]), each
        # Of a union, ours tells what is wrong in the branch that is meant.
        assert ours | {"MISSING_UNION_BRANCH"} >= set(each["kinds"]), each


@given(st.integers(0, 2**40))
@examples(400)
def test_what_is_compatible_can_be_read(seed: int) -> None:
    maker = SchemaMaker(seed)
    for reader, writer in (maker.pair(), maker.pair()[::-1]):
        if not problems_of(reader, writer):
            written = io.BytesIO()
            fastavro.schemaless_writer(written, writer, maker.value(writer))
            written.seek(0)
            fastavro.schemaless_reader(written, writer, reader)
            assert written.read() == b""


@given(st.integers(0, 2**40))
@examples(200)
def test_every_schema_reads_what_it_wrote_itself(seed: int) -> None:
    for schema in SchemaMaker(seed).pair():
        assert problems_of(schema, schema) == []


@pytest.mark.parametrize(
    ("reader", "writer", "problem"),
    [
        (
            record(field("a", "int"), field("b", "int"), field("c", "long")),
            record(field("a", "int"), field("b", "int"), field("c", "string")),
            "/fields/2/type: reader needs long, writer has string (TYPE_MISMATCH)",
        ),
        ("int", "long", "/: reader needs int, writer has long (TYPE_MISMATCH)"),
        (
            record(name="shop.Order"),
            record(name="shop.Bill"),
            "/name: reader needs record shop.Order, writer has record shop.Bill (NAME_MISMATCH)",
        ),
        (
            record(field("a", "int")),
            record(),
            (
                "/fields/0: reader needs the field 'a' (int) and has no default, writer has no such"
                " field (READER_FIELD_MISSING_DEFAULT_VALUE)"
            ),
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]},
            (
                "/symbols: reader has no default and not all symbols, writer also has B, C"
                " (MISSING_ENUM_SYMBOLS)"
            ),
        ),
        (
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 8},
            "/size: reader needs 4 bytes, writer has 8 (FIXED_SIZE_MISMATCH)",
        ),
        (
            ["null", "int"],
            "string",
            "/: reader needs one of [null, int], writer has string (MISSING_UNION_BRANCH)",
        ),
        (
            decimal(9, 2),
            decimal(9, 3),
            (
                "/: reader needs precision 9 and scale 2, writer has precision 9 and scale 3"
                " (DECIMAL_MISMATCH)"
            ),
        ),
        (
            record(field("a", "int", aliases=["b"])),
            record(field("a", "int"), field("b", "int")),
            "/fields/0: reader has one field 'a', writer has 'a' and 'b' for it (AMBIGUOUS_ALIAS)",
        ),
        (
            record(field("a", "int"), field("b", "int", aliases=["a"], default=1)),
            record(field("a", "int")),
            "/fields/1: reader has 'a' and 'b', writer has one 'a' for both (AMBIGUOUS_ALIAS)",
        ),
        (
            {"type": "array", "items": {"type": "map", "values": "int"}},
            {"type": "array", "items": {"type": "map", "values": ["int", "null"]}},
            "/items/values: reader needs int, writer has null (TYPE_MISMATCH)",
        ),
    ],
)
def test_what_is_in_the_way_is_named_with_its_place(reader: Any, writer: Any, problem: str) -> None:
    assert problems_of(reader, writer) == [problem]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("long", "int"),
        ("float", "long"),
        ("double", "float"),
        ("bytes", "string"),
        ("string", "bytes"),
        (["null", "double"], ["int", "null"]),
        ("long", ["int", "long"]),
        ("int", []),
        (record(field("a", "int", default=1)), record()),
        (record(), record(field("a", "int"))),
        (record(field("a", "int", aliases=["b"])), record(field("b", "int"))),
        (record(name="x.R"), record(name="y.R")),
        (record(name="New", aliases=["x.Old"]), record(name="x.Old")),
        (record(name="x.New", aliases=["Old"]), record(name="x.Old")),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ),
        (decimal(9, 2), decimal(9, 2)),
        (decimal(9, 2), "bytes"),
        (
            record(field("next", ["null", "R"])),
            record(field("next", ["null", "R"]), field("more", "int")),
        ),
    ],
)
def test_what_the_specification_lets_pass_is_compatible(reader: Any, writer: Any) -> None:
    assert problems_of(reader, writer) == []


def test_a_decimal_is_no_text() -> None:
    assert problems_of("string", decimal(9, 2)) != []


def test_a_union_is_reported_with_the_problem_of_the_matching_branch() -> None:
    reader = ["null", record(field("a", "int"), name="x.R")]
    writer = ["null", record(field("a", "string"), name="x.R")]
    assert problems_of(reader, writer) == [
        "/1/fields/0/type: reader needs int, writer has string (TYPE_MISMATCH)",
    ]


def test_of_two_records_with_the_same_simple_name_the_full_one_is_meant() -> None:
    union = [record(field("a", "int"), name="x.R"), record(field("b", "int"), name="y.R")]
    assert problems_of(union, union) == []


def test_a_loop_cannot_be_read_where_something_in_it_cannot() -> None:
    inner = record(field("back", ["null", "A"]), name="B")
    writer = record(field("b", inner), field("x", "string"), name="A")
    reader = record(field("b", inner), field("x", "int"), name="A")
    assert problems_of(reader, writer) == [
        "/fields/1/type: reader needs int, writer has string (TYPE_MISMATCH)"
    ]


@pytest.mark.long
def test_unions_too_large_to_compare_are_refused_in_bounded_time() -> None:
    def union(prefix: str) -> list[Any]:
        records = [record(name=f"{prefix}{n}") for n in range(700)]
        return [{"type": "array", "items": "int"}, *records]

    several = record(*(field(f"f{n}", union(f"N{n}_")) for n in range(2)))
    assert problems_of(several, several) == []
    # Arrays may be read by any branch, so each of the writer's branches meets all of the reader's.
    maps = {"type": "map", "values": "int"}
    primitives = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
    wide = [*primitives, maps, {"type": "array", "items": "int"}]
    deep = record(*(field(f"f{n}", wide) for n in range(PAIRS_MAX // 100 + 50)))
    assert problems_of(deep, deep) == [
        f"/: more than {PAIRS_MAX} pairs of types to compare (TOO_LARGE)"
    ]


@pytest.mark.long
def test_as_many_fields_as_a_text_holds_are_compared() -> None:
    """Looking for each among all the others would take minutes."""
    many = record(*(field(f"f{n}", "int") for n in range(25_000)))
    assert problems_of(many, many) == []


OLD = record(field("a", "int"))
WIDER = record(field("a", "long"))


@pytest.mark.parametrize(
    ("level", "readers"),
    [
        ("NONE", []),
        ("BACKWARD", []),
        ("BACKWARD_TRANSITIVE", []),
        ("FORWARD", ["version 1"]),
        ("FORWARD_TRANSITIVE", ["version 1"]),
        ("FULL", ["version 1"]),
        ("FULL_TRANSITIVE", ["version 1"]),
    ],
)
def test_a_level_says_who_must_read_whom(level: str, readers: list[str]) -> None:
    new, old = AvroParser().read(WIDER), AvroParser().read(OLD)
    found = incompatibilities(new, [("version 1", old)], Compatibility(level))
    assert [each.partition("reader is ")[2].partition(",")[0] for each in found] == readers
    backward = incompatibilities(old, [("version 1", new)], Compatibility(level))
    assert bool(backward) == ("BACK" in level or "FULL" in level)
