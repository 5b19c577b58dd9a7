"""Validates frames against kafka-python's message schemas and counts the errors of responses.

The decoders of kafka-python trust the sender. They truncate strings at the end of the frame,
loop over counts and varints of any size, accept null everywhere, and copy the rest of the frame
for each structure with tags. A frame that matches its schema causes none of this.

Source: the message schemas that kafka-python carries; Kafka protocol guide, "Protocol
Primitive Types".
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from logbroker.errors import MalformedRequest
from logbroker.wire.error_codes import NONE
from logbroker.wire.frame_reader import FrameReader

Field = Mapping[str, Any]
"""A field of a schema: name, type, versions, nullableVersions and inner fields."""

Check = Callable[["BoundedReader"], int]
"""Skips one field and returns the number of structures with tags in it."""

_ERROR_CODE: Final = "ErrorCode"
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")

FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    # kafka-python's type of an int32 with authorized operations.
    "bitfield": 4,
}

COPIED_BYTES_MAX: Final = 64 * 2**20
"""The maximum that kafka-python copies for the tags of one request: about 10 ms of work."""


class BoundedReader(FrameReader):
    """A reader of a frame whose arrays may have `items_left` items in all."""

    __slots__ = ("items_left",)

    def __init__(
        self, frame: memoryview, position: int, *, is_flexible: bool, items_max: int
    ) -> None:
        super().__init__(frame, position, len(frame), is_flexible=is_flexible)
        self.items_left = items_max

    def count_items(self, count: int) -> None:
        """Take `count` items of an array from what is left.

        Raises:
            MalformedRequest: the frame has more items than allowed.
        """
        self.items_left -= count
        if self.items_left < 0:
            raise MalformedRequest(f"array of {count} items exceeds the limit of the request")


class Structure:
    """The fields of one version of a structure, in wire order."""

    __slots__ = ("_checks", "bytes_min")

    def __init__(self, fields: Sequence[Field], version: int) -> None:
        present = [field for field in fields if is_in(version, field["versions"])]
        assert not any("tag" in field for field in present), "no served request has known tags"
        self._checks = [_check(field, version) for field in present]
        self.bytes_min = sum(FIXED_BYTES.get(field["type"], 1) for field in present)

    def skip(self, reader: BoundedReader) -> int:
        """Skip the structure and return how many structures in it, itself included, have tags.

        Raises:
            MalformedRequest: the bytes do not match the structure.
        """
        tagged = sum(check(reader) for check in self._checks)
        return tagged + (reader.skip_tags() > 0)


def validate_frame(structure: Structure, reader: BoundedReader) -> None:
    """Check that the rest of the frame begins with `structure`.

    Raises:
        MalformedRequest: it does not, or decoding its tags would cost too much.
    """
    size = reader.end - reader.position
    tagged = structure.skip(reader)
    if tagged * size > COPIED_BYTES_MAX:
        raise MalformedRequest(f"{tagged} structures with tags in {size} bytes")


def _check(field: Field, version: int) -> Check:
    kind = field["type"]
    nullable = is_in(version, field.get("nullableVersions", "none"))
    if kind in FIXED_BYTES:
        return _fixed(FIXED_BYTES[kind])
    if kind == "string":
        return _string(nullable=nullable)
    if kind == "bytes":
        assert not nullable, "no served request has bytes that may be null"
        return _skip_bytes
    assert kind.startswith("[]"), f"{kind} is in no served request"
    item = Structure(field["fields"], version) if "fields" in field else None
    if item is not None:
        return _array(item.skip, item.bytes_min, nullable=nullable)
    inner: Field = {"type": kind[2:]}
    return _array(_check(inner, version), FIXED_BYTES.get(kind[2:], 1), nullable=nullable)


def _fixed(size: int) -> Check:
    def check(reader: BoundedReader) -> int:
        reader.skip(size)
        return 0

    return check


def _string(*, nullable: bool) -> Check:
    def check(reader: BoundedReader) -> int:
        if nullable:
            reader.read_nullable_string()
        else:
            reader.read_string()
        return 0

    return check


def _skip_bytes(reader: BoundedReader) -> int:
    reader.skip(reader.read_count(1))
    return 0


def _array(item: Check, item_bytes_min: int, *, nullable: bool) -> Check:
    def check(reader: BoundedReader) -> int:
        count = (reader.read_nullable_count if nullable else reader.read_count)(item_bytes_min)
        reader.count_items(count)
        return sum(item(reader) for _ in range(count))

    return check


def is_in(version: int, versions: str) -> bool:
    """Return whether a range of a schema ("none", "3", "0+" or "8-10") contains `version`."""
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    lowest, _, highest = versions.partition("-")
    return int(lowest) <= version <= int(highest or lowest)


class _ErrorFields:
    """The error code field of one structure, and its arrays whose items have such fields."""

    __slots__ = ("_has_code", "_lists")

    def __init__(self, fields: Sequence[Field], version: int) -> None:
        present = [field for field in fields if is_in(version, field["versions"])]
        lists = [
            (_attribute(field["name"]), _ErrorFields(field["fields"], version))
            for field in present
            if field["type"].startswith("[]") and "fields" in field
        ]
        self._has_code = any(field["name"] == _ERROR_CODE for field in present)
        self._lists = [(name, fields) for name, fields in lists if fields.exist]

    @property
    def exist(self) -> bool:
        """Whether the structure has an error code at any level."""
        return self._has_code or bool(self._lists)

    def read_codes(self, structure: Any) -> Iterator[int]:
        if self._has_code and structure.error_code != NONE:
            yield structure.error_code
        for name, fields in self._lists:
            for item in getattr(structure, name) or ():
                yield from fields.read_codes(item)


def error_codes(message: Any, version: int) -> Counter[int]:
    """Count the error codes other than 0 of a kafka-python response."""
    return Counter(_error_fields(type(message), version).read_codes(message))  # type: ignore[arg-type]  # of Any


@cache
def _error_fields(kind: Any, version: int) -> _ErrorFields:
    return _ErrorFields(kind.json["fields"], version)


def _attribute(name: str) -> str:
    """Return the attribute name of a schema field in kafka-python."""
    return _WORD_START.sub("_", name).lower()
