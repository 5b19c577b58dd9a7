"""Parse JSON as an Avro schema.

Stricter than fastavro, which accepts schemas that other languages reject: names, unions and
attributes must follow the specification. Unknown or invalid logical types are ignored, as the
specification requires.

Source: Avro 1.12 specification, "Schema Declaration", "Names", "Aliases", "Logical Types".
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from logbroker.schemas.avro.default_values import DefaultCheck, TooManyDefaults
from logbroker.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    RecordType,
    Union,
)
from logbroker.schemas.errors import InvalidSchema

DEPTH_MAX: Final = 64
"""Nesting depth of types; readers of schemas recurse over it."""

NAMES_MAX: Final = 2_000
"""Records, enums and fixed types of a schema and of all schemas that it references."""

NAME_LENGTH_MAX: Final = 1_000
"""Characters of a full name; a namespace is repeated for each type in it."""

FIXED_SIZE_MAX: Final = 2**31 - 1

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ORDERS: Final = ("ascending", "descending", "ignore")
_QUOTED_MAX: Final = 80


class AvroParser:
    """Parses schemas in order; each may use the names that earlier ones defined."""

    def __init__(self) -> None:
        self.names: dict[str, Named] = {}
        self._path: list[str] = []
        self._depth = 0

    def read(self, written: Any) -> AvroType:
        """Parse a JSON value as a type.

        Raises:
            InvalidSchema: the value is not a type; the message names the place and the problem.
        """
        return self._type(written, "")

    def _type(self, written: Any, namespace: str) -> AvroType:
        if isinstance(written, str):
            return self._by_name(written, namespace)
        with self._deeper():
            if isinstance(written, list):
                return self._union(written, namespace)
            if isinstance(written, dict):
                return self._complex(written, namespace)
        raise self._wrong(f"{_quoted(written)} is not a type")

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = _full_name(name, namespace)
        known = self.names.get(full)
        if known is None:
            raise self._wrong(f"the type {_quoted(full)} is not defined")
        return known

    def _complex(self, written: Mapping[str, Any], namespace: str) -> AvroType:
        kind = written.get("type", NO_DEFAULT)
        match kind:
            case "record" | "error":
                return self._record(written, namespace)
            case "enum":
                return self._enum(written, namespace)
            case "fixed":
                return self._fixed(written, namespace)
            case "array":
                return Array(self._inner(written, "items", namespace))
            case "map":
                return Map(self._inner(written, "values", namespace))
            case str() if kind in PRIMITIVES:
                return Primitive(kind, self._decimal(written) if kind == "bytes" else None)
            case _:
                return self._inner(written, "type", namespace)

    def _inner(self, written: Mapping[str, Any], attribute: str, namespace: str) -> AvroType:
        if attribute not in written:
            raise self._wrong(f"{_quoted(written)} has no {attribute!r}")
        with self._at(attribute):
            return self._type(written[attribute], namespace)

    def _union(self, written: list[Any], namespace: str) -> Union:
        branches: list[AvroType] = []
        kinds = set()
        for place, each in enumerate(written):
            with self._at(str(place)):
                branch = self._type(each, namespace)
                if isinstance(branch, Union):
                    raise self._wrong("a union immediately within a union")
                kind = branch.name if isinstance(branch, Named) else branch.kind
                if kind in kinds:
                    raise self._wrong(f"the union has {kind} twice")
            kinds.add(kind)
            branches.append(branch)
        return Union(branches)

    def _fixed(self, written: Mapping[str, Any], namespace: str) -> Fixed:
        name, aliases = self._names(written, namespace)
        size = written.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_SIZE_MAX:
            raise self._wrong(f"invalid size of {name}: {_quoted(size)}; must be a number of bytes")
        fixed = Fixed(name, aliases, size, self._decimal(written))
        self._define(fixed)
        return fixed

    def _enum(self, written: Mapping[str, Any], namespace: str) -> Enum:
        name, aliases = self._names(written, namespace)
        symbols = written.get("symbols")
        if not isinstance(symbols, list):
            raise self._wrong(f"the enum {name} has no list of symbols")
        for each in symbols:
            self._expect_simple_name(each, "symbol")
        if len(set(symbols)) < len(symbols):
            raise self._wrong(f"the enum {name} has a symbol twice")
        default = written.get("default")
        if default is not None and default not in symbols:
            raise self._wrong(
                f"invalid default: {_quoted(default)} is not a symbol of the enum {name}"
            )
        enum = Enum(name, aliases, dict.fromkeys(symbols), default)
        self._define(enum)
        return enum

    def _record(self, written: Mapping[str, Any], namespace: str) -> RecordType:
        name, aliases = self._names(written, namespace)
        fields = written.get("fields")
        if not isinstance(fields, list):
            raise self._wrong(f"the record {name} has no list of fields")
        record = RecordType(name, aliases)
        # Defined before its fields are parsed: they may be of this type.
        self._define(record)
        with self._at("fields"):
            for place, each in enumerate(fields):
                with self._at(str(place)):
                    record.fields.append(self._field(each, record))
        self._expect_distinct_fields(record)
        return record

    def _field(self, written: Any, record: RecordType) -> Field:
        if not isinstance(written, dict):
            raise self._wrong(f"{_quoted(written)} is not a field")
        name = written.get("name")
        self._expect_simple_name(name, "field name")
        if written.get("order", "ascending") not in _ORDERS:
            raise self._wrong(
                f"invalid order: {_quoted(written['order'])}; must be one of {_ORDERS}"
            )
        aliases = frozenset(self._alias_list(written))
        for each in aliases:
            self._expect_simple_name(each, "alias")
        inner = self._inner(written, "type", record.name.rpartition(".")[0])
        default = written.get("default", NO_DEFAULT)
        return Field(str(name), aliases, inner, default)

    def _expect_distinct_fields(self, record: RecordType) -> None:
        taken: set[str] = set()
        for each in record.fields:
            if each.name in taken:
                raise self._wrong(f"the record {record.name} has the field {each.name!r} twice")
            taken.add(each.name)

    def expect_defaults(self) -> None:
        """Check that every default is a value of its field's type.

        Call it after everything is parsed: a record's type is complete only then.

        Raises:
            InvalidSchema: a default does not match.
        """
        check = DefaultCheck()
        for named in self.names.values():
            for each in named.fields if isinstance(named, RecordType) else ():
                if each.default is not NO_DEFAULT:
                    self._expect_default(check, named, each)

    def _expect_default(self, check: DefaultCheck, record: Named, field: Field) -> None:
        try:
            problem = check.misfit(field.default, field.type)
        except TooManyDefaults as error:
            raise InvalidSchema(f"The schema is too large to check: {error}.") from None
        if problem is not None:
            raise InvalidSchema(
                f"invalid default: field {field.name!r} of {record.name}: {problem}"
            )

    def _names(self, written: Mapping[str, Any], namespace: str) -> tuple[str, frozenset[str]]:
        """The full name of a type and its aliases."""
        name = written.get("name")
        if not isinstance(name, str):
            raise self._wrong(f"a {written['type']} without a name")
        own = written.get("namespace", namespace)
        if not isinstance(own, str):
            raise self._wrong(f"invalid namespace: {_quoted(own)} is not a string")
        full = _full_name(name, own)
        self._expect_full_name(full)
        home = full.rpartition(".")[0]
        aliases = frozenset(_full_name(each, home) for each in self._alias_list(written))
        for each in aliases:
            self._expect_full_name(each)
        return full, aliases

    def _alias_list(self, written: Mapping[str, Any]) -> list[str]:
        aliases = written.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
            raise self._wrong(f"invalid aliases: {_quoted(aliases)}; must be a list of strings")
        return aliases

    def _define(self, named: Named) -> None:
        if named.name in self.names:
            raise self._wrong(f"the type {named.name} is defined twice")
        if len(self.names) >= NAMES_MAX:
            raise self._wrong(f"more than {NAMES_MAX} types are defined")
        self.names[named.name] = named

    def _decimal(self, written: Mapping[str, Any]) -> Decimal | None:
        """The decimal type; None if precision or scale is invalid, so that it is ignored."""
        if written.get("logicalType") != "decimal":
            return None
        precision, scale = written.get("precision"), written.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            return None
        return Decimal(precision, scale) if 0 <= scale <= precision and precision > 0 else None

    def _expect_full_name(self, full: str) -> None:
        if len(full) > NAME_LENGTH_MAX:
            raise self._wrong(
                f"the name {_quoted(full)} has {len(full)} characters; allowed are"
                f" {NAME_LENGTH_MAX}"
            )
        for each in full.split("."):
            self._expect_simple_name(each, "name")
        if full in PRIMITIVES:
            raise self._wrong(f"{full!r} is the name of a primitive type")

    def _expect_simple_name(self, name: Any, what: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._wrong(f"invalid {what}: {_quoted(name)}; must match [A-Za-z_][A-Za-z0-9_]*")

    @contextmanager
    def _at(self, step: str) -> Iterator[None]:
        self._path.append(step)
        yield
        self._path.pop()

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        if self._depth >= DEPTH_MAX:
            raise self._wrong(f"types are nested more than {DEPTH_MAX} deep")
        self._depth += 1
        yield
        self._depth -= 1

    def _wrong(self, problem: str) -> InvalidSchema:
        return InvalidSchema(f"Invalid schema at /{'/'.join(self._path)}: {problem}.")


def _full_name(name: str, namespace: str) -> str:
    """The full name; a name with a dot is full already."""
    if "." in name:
        return name
    return f"{namespace}.{name}" if namespace else name


def _quoted(written: Any) -> str:
    text = repr(written)
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}..."
