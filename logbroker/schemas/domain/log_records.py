"""Encode and decode the records of the log `_schemas`.

Keys and values are JSON objects with the members of Confluent's registry. Values have one more
member: `after`, the digest of the last record that counted when this one was decided; null if there
was none. So deletions have values, which Confluent's lack: a permanently deleted version has
`"permanent": true`, a cleared level is null.

A digest covers a record's key and value as stored, and through `after` all records before it.
Records that count have distinct digests, which are the same in every copy of the log.

    {"keytype":"SCHEMA","subject":S,"version":V,"magic":1}
        {"subject":S,"version":V,"id":N,"schema":TEXT,"references":[...],"deleted":false,"after":A}
    {"keytype":"SCHEMA","subject":S,"version":V,"magic":1}
        {"subject":S,"version":V,"id":N,"deleted":true,"permanent":false,"after":A}
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}
        {"subject":S,"permanent":false,"after":A}
    {"keytype":"CONFIG","subject":S or null,"magic":0}
        {"compatibilityLevel":"FULL","after":A}
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import Reference, SchemaText

DIGEST_BYTES: Final = 16
"""128 bits: no second record with the same digest can be found."""

_DIGEST: Final = re.compile(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


@dataclass(frozen=True, slots=True)
class VersionRegistered:
    """A schema became a version of a subject, with a new id or the id it has."""

    subject: str
    version: int
    id: int
    schema: SchemaText


@dataclass(frozen=True, slots=True)
class VersionDeleted:
    """A version was deleted: softly, or later permanently."""

    subject: str
    version: int
    id: int
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """All versions of a subject were deleted: softly, or later permanently."""

    subject: str
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class LevelSet:
    """The level of a subject, or (None) the global level, was set, or (None) cleared."""

    subject: str | None
    level: Compatibility | None


Change = VersionRegistered | VersionDeleted | SubjectDeleted | LevelSet


class Decided(NamedTuple):
    """A change, and the digest of the last record that counted when it was decided."""

    change: Change
    after: str | None


def encode(decided: Decided) -> tuple[bytes, bytes]:
    """The key and the value of a record."""
    key, value = _members(decided.change)
    return _to_bytes(key), _to_bytes(value | {"after": decided.after})


def digest(key: bytes, value: bytes) -> str:
    """The digest of a record, in 32 hex digits."""
    lengths = len(key).to_bytes(8, "big") + len(value).to_bytes(8, "big")
    return hashlib.blake2b(lengths + key + value, digest_size=DIGEST_BYTES).hexdigest()


def parse(key: bytes, value: bytes) -> Decided | None:
    """The change of a record; None if it is not a record of this registry."""
    try:
        key_members = _from_bytes(key)
        value_members = _from_bytes(value)
        change = _READERS[key_members["keytype"]](key_members, value_members)
        return Decided(change, _link(value_members["after"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _members(change: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    match change:
        case VersionRegistered():
            content = {"id": change.id, "schema": change.schema.text, "deleted": False}
            content |= _references(change.schema)
            return _version_key(change), _subject_version(change) | content
        case VersionDeleted():
            content = {"id": change.id, "deleted": True, "permanent": change.is_permanent}
            return _version_key(change), _subject_version(change) | content
        case SubjectDeleted():
            key = {"keytype": "DELETE_SUBJECT", "subject": change.subject, "magic": 0}
            return key, {"subject": change.subject, "permanent": change.is_permanent}
        case LevelSet():
            key = {"keytype": "CONFIG", "subject": change.subject, "magic": 0}
            return key, {"compatibilityLevel": change.level and change.level.value}


def _version_key(change: VersionRegistered | VersionDeleted) -> dict[str, Any]:
    return {"keytype": "SCHEMA"} | _subject_version(change) | {"magic": 1}


def _subject_version(change: VersionRegistered | VersionDeleted) -> dict[str, Any]:
    return {"subject": change.subject, "version": change.version}


def _references(schema: SchemaText) -> dict[str, Any]:
    if not schema.references:
        return {}
    return {
        "references": [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    }


def _read_version(key: Mapping[str, Any], value: Mapping[str, Any]) -> Change:
    subject, version = _text(key["subject"]), _integer(key["version"], 1)
    schema_id = _integer(value["id"], 1)
    if _flag(value["deleted"]):
        return VersionDeleted(subject, version, schema_id, _flag(value["permanent"]))
    references = tuple(
        Reference(_text(each["name"]), _text(each["subject"]), _integer(each["version"], 1))
        for each in value.get("references", ())
    )
    schema = SchemaText(_text(value["schema"]), references)
    return VersionRegistered(subject, version, schema_id, schema)


def _read_deleted_subject(key: Mapping[str, Any], value: Mapping[str, Any]) -> Change:
    return SubjectDeleted(_text(key["subject"]), _flag(value["permanent"]))


def _read_level(key: Mapping[str, Any], value: Mapping[str, Any]) -> Change:
    subject = None if key["subject"] is None else _text(key["subject"])
    level = value["compatibilityLevel"]
    return LevelSet(subject, None if level is None else Compatibility(level))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Change]]] = {
    "SCHEMA": _read_version,
    "DELETE_SUBJECT": _read_deleted_subject,
    "CONFIG": _read_level,
}


def _to_bytes(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def _from_bytes(text: bytes) -> dict[str, Any]:
    members = json.loads(text)
    if not isinstance(members, dict):
        raise TypeError(f"a JSON object is expected, not {type(members).__name__}")
    return members


def _text(member: Any) -> str:
    if not isinstance(member, str):
        raise TypeError(f"a text is expected, not {member!r}")
    member.encode()  # rejects lone surrogates, which no response can contain
    return member


def _link(member: Any) -> str | None:
    if member is not None and not (isinstance(member, str) and _DIGEST.fullmatch(member)):
        raise TypeError(f"a digest or null is expected, not {member!r}")
    return member


def _flag(member: Any) -> bool:
    if not isinstance(member, bool):
        raise TypeError(f"true or false is expected, not {member!r}")
    return member


def _integer(member: Any, least: int) -> int:
    if type(member) is not int or member < least:
        raise TypeError(f"an integer from {least} on is expected, not {member!r}")
    return member
