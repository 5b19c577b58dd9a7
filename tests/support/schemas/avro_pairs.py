"""Random Avro schemas, later versions of them, and values."""

import copy
import random
from collections.abc import Iterator
from typing import Any

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "b",
    "string": "s",
}
DEPTH = 3


class SchemaMaker:
    """Generates schemas that define each name once. The same seed gives the same schemas."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def pair(self) -> tuple[Any, Any]:
        """Return a schema and a changed version of it."""
        first = self._schema(DEPTH, [])
        second = copy.deepcopy(first)
        for _ in range(self._random.randint(1, 3)):
            second = self._changed(second)
        return first, second

    def value(self, schema: Any) -> Any:
        """Return a random value of a schema, in fastavro's form."""
        return self._value(schema, dict(_definitions(schema)), 0)

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _schema(self, depth: int, enclosing: list[str]) -> Any:
        kinds = ["primitive", "enum", "fixed"]
        if depth:
            kinds += ["record", "record", "array", "map", "union"]
        kind = self._random.choice(kinds) if depth < DEPTH else "record"
        match kind:
            case "primitive":
                return self._random.choice(PRIMITIVES)
            case "enum":
                return {"type": "enum", "name": self._name("E"), "symbols": ["A", "B", "C"]}
            case "fixed":
                size = self._random.randint(1, 4)
                return {"type": "fixed", "name": self._name("F"), "size": size}
            case "array":
                return {"type": "array", "items": self._schema(depth - 1, enclosing)}
            case "map":
                return {"type": "map", "values": self._schema(depth - 1, enclosing)}
            case "union":
                return self._union(depth, enclosing)
            case _:
                return self._record(depth, enclosing)

    def _union(self, depth: int, enclosing: list[str]) -> list[Any]:
        branches = self._random.sample(PRIMITIVES, self._random.randint(1, 3))
        if self._random.random() < 0.5:
            extra = self._schema(depth - 1, enclosing)
            if not isinstance(extra, str | list):
                branches.append(extra)
        return branches

    def _record(self, depth: int, enclosing: list[str]) -> dict[str, Any]:
        name = self._name("R")
        fields = [
            {"name": f"f{place}", "type": self._schema(depth - 1, [*enclosing, name])}
            for place in range(self._random.randint(1, 3))
        ]
        if self._random.random() < 0.3:
            back = self._random.choice([*enclosing, name])
            fields.append({"name": "back", "type": ["null", back]})
        return {"type": "record", "name": name, "fields": fields}

    def _changed(self, schema: Any) -> Any:
        """Change one place of the schema."""
        places = list(_places(schema))
        where, key = self._random.choice(places) if places else (None, None)
        if where is None or self._random.random() < 0.05:
            return self._other(schema)
        where[key] = self._other(where[key])
        if key == "type":
            where.pop("default", None)
        return schema

    def _other(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self._random.choice([*PRIMITIVES, ["null", "string"]])
        if isinstance(schema, list):
            return self._other_union(schema)
        match schema["type"]:
            case "record":
                self._change_record(schema)
            case "enum":
                self._change_enum(schema)
            case "fixed":
                self._change_fixed(schema)
            case _:
                return self._random.choice(PRIMITIVES)
        return schema

    def _other_union(self, union: list[Any]) -> Any:
        loose = [each for each in union if each in PRIMITIVES]
        if any(isinstance(each, str) and each not in PRIMITIVES for each in union):
            return union
        if len(union) > 1 and loose and self._random.random() < 0.4:
            gone = self._random.choice(loose)
            return [each for each in union if each != gone]
        if loose and self._random.random() < 0.3:
            return self._random.choice(loose)
        missing = [each for each in PRIMITIVES if each not in union]
        return [*union, self._random.choice(missing)]

    def _change_record(self, record: dict[str, Any]) -> None:
        fields = record["fields"]
        match self._random.choice(["add", "add", "remove", "rename", "shuffle", "name"]):
            case "add":
                kind = self._random.choice(PRIMITIVES)
                field: dict[str, Any] = {"name": self._name("n"), "type": kind}
                if self._random.random() < 0.7:
                    field["default"] = DEFAULTS[kind]
                fields.insert(self._random.randint(0, len(fields)), field)
            case "remove":
                loose = [each for each in fields if not dict(_definitions(each["type"]))]
                if loose:
                    fields.remove(self._random.choice(loose))
            case "rename" if fields:
                field = self._random.choice(fields)
                if self._random.random() < 0.7:
                    field["aliases"] = [field["name"]]
                field["name"] = self._name("g")
            case "shuffle":
                self._random.shuffle(fields)
            case _ if "back" not in str(record):
                self._rename(record)

    def _rename(self, named: dict[str, Any]) -> None:
        if self._random.random() < 0.6:
            named["aliases"] = [named["name"]]
        named["name"] = self._name("Z")

    def _change_enum(self, enum: dict[str, Any]) -> None:
        match self._random.choice(["add", "remove", "default", "name"]):
            case "add":
                enum["symbols"] = [*enum["symbols"], self._name("S")]
            case "remove" if len(enum["symbols"]) > 1 and "default" not in enum:
                enum["symbols"] = enum["symbols"][1:]
            case "default":
                enum["default"] = enum["symbols"][-1]
            case _:
                self._rename(enum)

    def _change_fixed(self, fixed: dict[str, Any]) -> None:
        if self._random.random() < 0.5:
            fixed["size"] += 1
        else:
            self._rename(fixed)

    def _value(self, schema: Any, known: dict[str, Any], depth: int) -> Any:
        if isinstance(schema, list):
            branch = schema[0] if depth > 6 else self._random.choice(schema)
            return self._branch_value(branch, known, depth)
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "record":
                return {
                    each["name"]: self._value(each["type"], known, depth + 1)
                    for each in schema["fields"]
                }
            case "array":
                return [self._value(schema["items"], known, depth + 1) for _ in range(2)]
            case "map":
                return {"k": self._value(schema["values"], known, depth + 1)}
            case "enum":
                return self._random.choice(schema["symbols"])
            case "fixed":
                return self._random.randbytes(schema["size"])
            case _ if kind in known:
                return self._value(known[kind], known, depth)
            case _:
                return self._primitive(kind)

    def _branch_value(self, branch: Any, known: dict[str, Any], depth: int) -> Any:
        """Return a union's value with the branch's name: fastavro would choose the first match."""
        value = self._value(branch, known, depth)
        name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        return (name, value)

    def _primitive(self, kind: str) -> Any:
        return {
            "null": None,
            "boolean": self._random.random() < 0.5,
            "int": self._random.randint(-(2**31), 2**31 - 1),
            "long": self._random.randint(-(2**63), 2**63 - 1),
            "float": self._random.choice([0.5, -2.0]),
            "double": self._random.random(),
            # Invalid UTF-8 cannot be read as a string, although Avro promotes bytes to strings.
            "bytes": "grün".encode(),
            "string": "grün",
        }[kind]


def _places(schema: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the container and key of each type except the root."""
    if isinstance(schema, list):
        for place, each in enumerate(schema):
            # A union must not contain a union.
            if not isinstance(each, str):
                yield from _places(each)
                if each["type"] in ("record", "enum", "fixed"):
                    yield schema, place
    elif isinstance(schema, dict):
        for each in schema.get("fields", []):
            yield each, "type"
            yield from _places(each["type"])
        for key in ("items", "values"):
            if key in schema:
                yield schema, key
                yield from _places(schema[key])


def _definitions(schema: Any) -> Iterator[tuple[str, Any]]:
    """Return the named types of a schema."""
    if isinstance(schema, dict) and "name" in schema and "type" in schema:
        yield schema["name"], schema
    if isinstance(schema, list):
        for each in schema:
            yield from _definitions(each)
    elif isinstance(schema, dict):
        for each in schema.get("fields", []):
            yield from _definitions(each["type"])
        for key in ("items", "values"):
            if key in schema:
                yield from _definitions(schema[key])
