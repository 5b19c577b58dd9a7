"""The canonical text of an Avro schema: schemas with the same text have the same id.

As in Confluent's registry, it keeps attributes that do not affect decoding: documentation,
defaults, aliases and custom attributes. It drops white space and the order of members, and writes
names in one way: relative to the namespace, which is written where it changes, `"int"` for
`{"type": "int"}`, and no ascending `order`.

This differs from the specification's "Parsing Canonical Form", which drops defaults as well: two
schemas that differ in a default only would be the same schema.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from logbroker.schemas.avro.types import PRIMITIVES

_ORDER: Final = (
    *("type", "name", "namespace", "doc", "aliases"),
    *("fields", "symbols", "size", "items", "values", "default"),
)
"""The members that come first, in this order; others follow by name."""

_FIELD_ORDER: Final = ("name", "type", "doc", "default", "order", "aliases")

_NAMED: Final = ("record", "error", "enum", "fixed")


def canonical_text(written: Any) -> str:
    """Return the canonical text of a schema that `AvroParser` accepted.

    Raises:
        ValueError: the schema has a number or a character that JSON in UTF-8 cannot represent.
    """
    members = _type(written, "")
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text.encode()
    return text


def _type(written: Any, namespace: str) -> Any:
    if isinstance(written, str):
        return _reference(written, namespace)
    if isinstance(written, list):
        return [_type(each, namespace) for each in written]
    kind = written["type"]
    if isinstance(kind, str) and kind in _NAMED:
        return _named(written, namespace)
    for attribute in ("items", "values"):
        if attribute in written and kind in ("array", "map"):
            return _ordered({**written, attribute: _type(written[attribute], namespace)})
    inner = _type(kind, namespace)
    return inner if len(written) == 1 else _ordered({**written, "type": inner})


def _named(written: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    full = _full_name(written["name"], written.get("namespace", namespace))
    home, _, name = full.rpartition(".")
    members = {**written, "name": name}
    members.pop("namespace", None)
    if home != namespace:
        members["namespace"] = home
    if "aliases" in written:
        members["aliases"] = sorted(
            _reference(_full_name(each, home), home) for each in written["aliases"]
        )
    if "fields" in written and written["type"] in ("record", "error"):
        members["fields"] = [_field(each, home) for each in written["fields"]]
    return _ordered(members)


def _field(written: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    members = {**written, "type": _type(written["type"], namespace)}
    if members.get("order") == "ascending":
        del members["order"]
    if "aliases" in members:
        members["aliases"] = sorted(members["aliases"])
    return _ordered(members, _FIELD_ORDER)


def _reference(name: str, namespace: str) -> str:
    """The name of a type, without the namespace that applies there anyway."""
    if name in PRIMITIVES:
        return name
    full = _full_name(name, namespace)
    home, _, simple = full.rpartition(".")
    return simple if home == namespace else full


def _full_name(name: str, namespace: str) -> str:
    if "." in name:
        return name
    return f"{namespace}.{name}" if namespace else name


def _ordered(members: Mapping[str, Any], order: Sequence[str] = _ORDER) -> dict[str, Any]:
    """The members in `order`; custom attributes are sorted by name at every level."""
    known = {name: members[name] for name in order if name in members}
    return known | {name: _sorted(members[name]) for name in sorted(members.keys() - known.keys())}


def _sorted(written: Any) -> Any:
    if isinstance(written, dict):
        return {name: _sorted(written[name]) for name in sorted(written)}
    if isinstance(written, list):
        return [_sorted(each) for each in written]
    return written
