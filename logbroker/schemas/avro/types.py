"""The types of a parsed Avro schema, with all names resolved.

Types are compared by identity: a recursive record contains itself.

Source: Avro 1.12 specification, "Schema Declaration".
"""

from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

NO_DEFAULT: Final = object()
"""Marks a field without a default, since null is a valid default."""


@dataclass(frozen=True, slots=True)
class Decimal:
    """The decimal logical type: an integer of `precision` digits, divided by 10 ** `scale`."""

    precision: int
    scale: int


@dataclass(eq=False, slots=True)
class Primitive:
    """One of `PRIMITIVES`."""

    kind: str
    decimal: Decimal | None = None


@dataclass(eq=False, slots=True)
class Array:
    """Any number of items of one type."""

    items: "AvroType"
    kind: str = field(default="array", init=False)


@dataclass(eq=False, slots=True)
class Map:
    """Values of one type, by text keys."""

    values: "AvroType"
    kind: str = field(default="map", init=False)


@dataclass(eq=False, slots=True)
class Union:
    """One of several types; none of them is a union."""

    branches: list["AvroType"]
    kind: str = field(default="union", init=False)


@dataclass(eq=False, slots=True)
class Fixed:
    """A fixed number of bytes."""

    name: str
    aliases: frozenset[str]
    size: int
    decimal: Decimal | None = None
    kind: str = field(default="fixed", init=False)


@dataclass(eq=False, slots=True)
class Enum:
    """One of several symbols, in order; `default` replaces symbols that a reader lacks."""

    name: str
    aliases: frozenset[str]
    symbols: dict[str, None]
    default: str | None
    kind: str = field(default="enum", init=False)


@dataclass(eq=False, slots=True)
class Field:
    """A field of a record; `default` is JSON, or NO_DEFAULT."""

    name: str
    aliases: frozenset[str]
    type: "AvroType"
    default: Any


@dataclass(eq=False, slots=True)
class RecordType:
    """Fields of several types; `fields` is filled after the types that they name are known."""

    name: str
    aliases: frozenset[str]
    fields: list[Field] = field(default_factory=list)
    kind: str = field(default="record", init=False)


Named = Fixed | Enum | RecordType
AvroType = Primitive | Array | Map | Union | Fixed | Enum | RecordType


def type_name(avro_type: AvroType) -> str:
    """The name of a type in messages: `long`, `enum shop.Colour`, `array`."""
    match avro_type:
        case Fixed() | Enum() | RecordType():
            return f"{avro_type.kind} {avro_type.name}"
        case Primitive(kind, Decimal(precision, scale)):
            return f"{kind} (decimal of {precision} digits, {scale} of them decimals)"
        case _:
            return avro_type.kind
