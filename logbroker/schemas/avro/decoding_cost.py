"""Bound the cost of decoding Avro bytes, from the schema or by a scan of the bytes.

A few bytes of Avro can stand for much larger values: a self-referencing list takes one byte per
level and C stack for each; a decimal of a megabyte takes a minute to convert to digits; an array of
nulls takes no bytes; a million records of one byte each become a million dictionaries. Values of
such schemas are scanned first, without creating objects. Schemas that allow costs which no scan
finds are rejected.

Source: Avro 1.12 specification, "Binary Encoding".
"""

from collections.abc import Callable
from json import dumps
from typing import Any, Final, NamedTuple

from logbroker.schemas.avro.json_values import JSON_BYTES_MAX
from logbroker.schemas.reading_errors import UndecodableValue

DEPTH_MAX: Final = 100
"""Nesting depth of records in one value; decoding worked at 900 and crashed at 5,000."""

DECIMAL_BYTES_MAX: Final = 512
"""Size of one decimal: 1,200 digits. Its cost grows with the square of the size."""

EMPTY_FIELDS_MAX: Final = 8
"""Fields of type null in a schema, which take no bytes: each costs memory in every record."""

_LONG_BYTES_MAX: Final = 10


class WalkedBytes(bytes):
    """A value, and the number of JSON bytes that its records may still use."""

    json_left: int


Walk = Callable[[WalkedBytes, int, int], int]
"""Takes the bytes, a position and the depth; returns the position after the value at the position.
"""


class Cost(NamedTuple):
    """The possible cost of values of a schema."""

    walk: Walk
    """Raises IndexError or UndecodableValue for a value that must not be decoded."""
    is_risky: bool
    """Whether values of any size must be scanned, not only those whose JSON may get long."""
    longest: int
    """Size of the longest field name, enum symbol or decimal: one byte may turn into it."""


def cost_of(schema: Any, named: dict[str, Any]) -> Cost:
    """Compute the cost of a schema parsed by fastavro, with the named types that it uses.

    Raises:
        UndecodableValue: the cost of its values is unbounded.
        RecursionError: the schema is nested too deep.
    """
    survey = _Survey(named)
    walk = survey.walk(schema)
    return Cost(walk, survey.is_risky, survey.longest)


class _Survey:
    """Visits a schema once and builds the scan of its values."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.is_risky = False
        self.longest = 0
        self._named = named
        self._walks: dict[str, Walk | None] = {}
        self._empty_fields = 0

    def walk(self, schema: Any) -> Walk:
        if isinstance(schema, list):
            return _union([self.walk(branch) for branch in schema])
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._referred(schema)
        return self._complex(schema)

    def _complex(self, schema: dict[str, Any]) -> Walk:
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema)
        if kind == "array":
            self._refuse_empty(schema["items"])
            return _blocks(self.walk(schema["items"]))
        if kind == "map":
            values = self.walk(schema["values"])
            return _blocks(lambda data, at, depth: values(data, _bytes(data, at, depth), depth))
        if kind == "bytes" and schema.get("logicalType") == "decimal":
            self.is_risky = True
            self._note_decimal(schema)
            return _decimal
        return _PLAIN[kind]

    def _referred(self, name: str) -> Walk:
        if name not in self._walks:
            return self._definition(self._named[name])
        walk = self._walks[name]
        if walk is None:
            # The type is being built by a caller, so it contains itself.
            self.is_risky = True
            return self._later(name)
        return walk

    def _later(self, name: str) -> Walk:
        def walk(data: WalkedBytes, at: int, depth: int) -> int:
            built = self._walks[name]
            assert built is not None
            return built(data, at, depth)

        return walk

    def _definition(self, schema: dict[str, Any]) -> Walk:
        name = schema["name"]
        walk: Walk
        if schema["type"] == "enum":
            self._note_names(schema["symbols"])
            walk = _long_end
        elif schema["type"] == "fixed":
            walk = self._fixed(schema)
        else:
            self._walks[name] = None
            walk = self._record(schema["fields"])
        self._walks[name] = walk
        return walk

    def _fixed(self, schema: dict[str, Any]) -> Walk:
        if schema.get("logicalType") == "decimal":
            self._note_decimal(schema)
            if schema["size"] > DECIMAL_BYTES_MAX:
                raise UndecodableValue(f"a decimal takes more than {DECIMAL_BYTES_MAX} bytes")
        return _fixed(schema["size"])

    def _record(self, fields: list[dict[str, Any]]) -> Walk:
        self._note_names([field["name"] for field in fields])
        self._empty_fields += sum(self._is_empty(field["type"], set()) for field in fields)
        if self._empty_fields > EMPTY_FIELDS_MAX:
            raise UndecodableValue(f"over {EMPTY_FIELDS_MAX} fields of the schema take no bytes")
        # Quotes, a colon, and a comma or a brace; and at least one character for the value.
        size = 2 + sum(len(dumps(field["name"])) + 3 for field in fields)
        return _record([self.walk(field["type"]) for field in fields], size)

    def _note_names(self, names: list[str]) -> None:
        self.longest = max(self.longest, *(len(dumps(name)) for name in names), 0)

    def _note_decimal(self, schema: dict[str, Any]) -> None:
        """Record the size of a decimal: one of a large scale is written with that many zeros."""
        self.longest = max(self.longest, schema.get("scale", 0))

    def _refuse_empty(self, items: Any) -> None:
        if self._is_empty(items, set()):
            raise UndecodableValue("items of an array of the schema take no bytes")

    def _is_empty(self, schema: Any, seen: set[str]) -> bool:
        """Whether values take no bytes; a record that must contain itself has no values."""
        if isinstance(schema, str):
            if schema in _PLAIN or schema in seen:
                return schema == "null" or schema in seen
            return self._is_empty(self._named[schema], seen)
        if isinstance(schema, list):
            return False
        if schema["type"] in ("record", "error"):
            inside = seen | {schema["name"]}
            return all(self._is_empty(field["type"], inside) for field in schema["fields"])
        kind, size = schema["type"], schema.get("size")
        return bool(kind == "null" or (kind == "fixed" and size == 0))


def _long(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    for end in range(at, at + _LONG_BYTES_MAX):
        byte = data[end]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise UndecodableValue(f"a number at byte {at} is too long")
    if raw >= 2**64:
        raise UndecodableValue(f"a number at byte {at} is too large")
    return (raw >> 1) ^ -(raw & 1), end + 1


def _long_end(data: bytes, at: int, _depth: int) -> int:
    return _long(data, at)[1]


def _bytes(data: bytes, at: int, _depth: int) -> int:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise UndecodableValue(f"{size} bytes are announced at byte {at} of {len(data)}")
    return at + size


def _decimal(data: WalkedBytes, at: int, depth: int) -> int:
    end = _bytes(data, at, depth)
    if end - at > DECIMAL_BYTES_MAX:
        raise UndecodableValue(f"a decimal takes more than {DECIMAL_BYTES_MAX} bytes")
    return end


def _fixed(size: int) -> Walk:
    return lambda _data, at, _depth: at + size


def _union(branches: list[Walk]) -> Walk:
    def walk(data: WalkedBytes, at: int, depth: int) -> int:
        chosen, at = _long(data, at)
        if not 0 <= chosen < len(branches):
            raise UndecodableValue(f"branch {chosen} of a union of {len(branches)}")
        return branches[chosen](data, at, depth)

    return walk


def _record(fields: list[Walk], size: int) -> Walk:
    """Scan the fields of a record whose JSON has at least `size` bytes."""

    def walk(data: WalkedBytes, at: int, depth: int) -> int:
        if depth == DEPTH_MAX:
            raise UndecodableValue(f"more than {DEPTH_MAX} records inside each other")
        data.json_left -= size
        if data.json_left < 0:
            raise UndecodableValue(f"it is longer than {JSON_BYTES_MAX} bytes as JSON")
        for field in fields:
            at = field(data, at, depth + 1)
        return at

    return walk


def _blocks(item: Walk) -> Walk:
    """Scan an array or a map: blocks of items, the last one empty."""

    def walk(data: WalkedBytes, at: int, depth: int) -> int:
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                at = _long(data, at)[1]
            for _ in range(count):
                at = item(data, at, depth)
                if at > len(data):
                    raise UndecodableValue(f"{count} items are announced that are not there")

    return walk


_PLAIN: Final[dict[str, Walk]] = {
    "null": lambda _data, at, _depth: at,
    "boolean": _fixed(1),
    "int": _long_end,
    "long": _long_end,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _bytes,
}
