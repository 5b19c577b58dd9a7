"""Check whether a default, in JSON, is a value of its type.

Source: Avro 1.12 specification, "Complex Types", the table "field default values".
"""

from collections.abc import Iterator
from typing import Any, Final

from logbroker.schemas.avro.types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    RecordType,
    Union,
    type_name,
)

JUDGEMENTS_MAX: Final = 500_000

_INTEGER_BITS: Final = {"int": 32, "long": 64}
_QUOTED_MAX: Final = 80


class TooManyDefaults(Exception):
    """The number of parts of defaults, times their possible branches, exceeds the limit."""


class DefaultCheck:
    """Checks defaults; each part is checked once per type, however types nest."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str | None] = {}

    def misfit(self, value: Any, avro_type: AvroType) -> str | None:
        """Why a JSON value is not of a type; None if it is.

        A union accepts a value of any of its branches. Checked values must outlive this object: it
        identifies them by identity.

        Raises:
            TooManyDefaults: the limit of checks is reached.
        """
        place = (id(value), id(avro_type))
        if place not in self._known:
            if len(self._known) >= JUDGEMENTS_MAX:
                raise TooManyDefaults(f"defaults have more than {JUDGEMENTS_MAX} parts")
            self._known[place] = self._judge(value, avro_type)
        return self._known[place]

    def _judge(self, value: Any, avro_type: AvroType) -> str | None:
        match avro_type:
            case Primitive(kind):
                fits = _fits_primitive(value, kind)
            case Enum():
                fits = isinstance(value, str) and value in avro_type.symbols
            case Fixed():
                fits = _are_bytes(value) and len(value) == avro_type.size
            case Union():
                fits = any(self.misfit(value, each) is None for each in avro_type.branches)
            case _:
                return self._judge_parts(value, avro_type)
        return None if fits else f"{_quoted(value)} is not of type {type_name(avro_type)}"

    def _judge_parts(self, value: Any, avro_type: Array | Map | RecordType) -> str | None:
        if not isinstance(value, list if isinstance(avro_type, Array) else dict):
            return f"{_quoted(value)} is not of type {type_name(avro_type)}"
        if isinstance(avro_type, RecordType):
            for each in avro_type.fields:
                if each.name not in value and each.default is NO_DEFAULT:
                    return f"a {type_name(avro_type)} needs {each.name!r}"
        problems = (self.misfit(each, inner) for each, inner in _parts(value, avro_type))
        return next((problem for problem in problems if problem is not None), None)


def _parts(value: Any, avro_type: Array | Map | RecordType) -> Iterator[tuple[Any, AvroType]]:
    match avro_type:
        case Array():
            yield from ((each, avro_type.items) for each in value)
        case Map():
            yield from ((each, avro_type.values) for each in value.values())
        case RecordType():
            for each in avro_type.fields:
                if each.name in value:
                    yield value[each.name], each.type


def _fits_primitive(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            limit = 1 << (_INTEGER_BITS[kind] - 1)
            return type(value) is int and -limit <= value < limit
        case "float" | "double":
            return type(value) in (int, float)
        case "bytes":
            return _are_bytes(value)
        case _:
            return isinstance(value, str)


def _are_bytes(value: Any) -> bool:
    """Whether each character is a byte, from 0 to 255."""
    return isinstance(value, str) and all(ord(each) < 256 for each in value)


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}..."
