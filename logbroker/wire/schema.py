"""The shape of each request that kafka-python decodes for us, checked before it does.

Its decoders trust the sender: they cut a text short where the frame ends, loop over counts and
varints of any size, take null where nothing may be null, and copy the rest of the frame at each
structure that has tags. A frame that fits its schema is safe from all of that.

Source: the message schemas that kafka-python carries; Kafka protocol guide, "Protocol
Primitive Types".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from logbroker.errors import MalformedRequest
from logbroker.wire.frame_reader import FrameReader

Field = Mapping[str, Any]
"""A field as the schemas have it: name, type, versions, nullableVersions and inner fields."""

Check = Callable[[FrameReader], int]
"""Passes over one field and counts structures with tags in it, or raises MalformedRequest."""

FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uuid": 16,
    # What kafka-python makes of an int32 that lists rights.
    "bitfield": 4,
}

COPIED_BYTES_MAX: Final = 64 * 2**20
"""How much kafka-python may copy for the tags of one request: some ten milliseconds of work."""


class Structure:
    """The fields that one version of a structure has on the wire, in their order."""

    __slots__ = ("_checks", "bytes_min")

    def __init__(self, fields: Sequence[Field], version: int) -> None:
        present = [field for field in fields if is_in(version, field["versions"])]
        assert not any("tag" in field for field in present), "no served request has known tags"
        self._checks = [_check(field, version) for field in present]
        self.bytes_min = sum(FIXED_BYTES.get(field["type"], 1) for field in present)

    def pass_over(self, reader: FrameReader) -> int:
        """Move on behind the structure; how many structures inside, and it, have tags.

        Raises:
            MalformedRequest: the bytes are no such structure.
        """
        tagged = sum(check(reader) for check in self._checks)
        return tagged + (reader.skip_tags() > 0)


def check_request(structure: Structure, reader: FrameReader) -> None:
    """Check that the rest of the frame begins with one `structure`.

    Raises:
        MalformedRequest: it does not, or decoding its tags would cost too much.
    """
    size = reader.end - reader.position
    tagged = structure.pass_over(reader)
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
        return _pass_over_bytes
    assert kind.startswith("[]"), f"{kind} is in no served request"
    item = Structure(field["fields"], version) if "fields" in field else None
    if item is not None:
        return _array(item.pass_over, item.bytes_min, nullable=nullable)
    inner: Field = {"type": kind[2:]}
    return _array(_check(inner, version), FIXED_BYTES.get(kind[2:], 1), nullable=nullable)


def _fixed(size: int) -> Check:
    def check(reader: FrameReader) -> int:
        reader.skip(size)
        return 0

    return check


def _string(*, nullable: bool) -> Check:
    def check(reader: FrameReader) -> int:
        if nullable:
            reader.nullable_string()
        else:
            reader.string()
        return 0

    return check


def _pass_over_bytes(reader: FrameReader) -> int:
    reader.skip(reader.count(1))
    return 0


def _array(item: Check, item_bytes_min: int, *, nullable: bool) -> Check:
    def check(reader: FrameReader) -> int:
        count = (reader.nullable_count if nullable else reader.count)(item_bytes_min)
        return sum(item(reader) for _ in range(count))

    return check


def is_in(version: int, versions: str) -> bool:
    """Whether a range of the schemas holds `version`: "none", "3", "0+" or "8-10"."""
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    lowest, _, highest = versions.partition("-")
    return int(lowest) <= version <= int(highest or lowest)
