"""The file formats of commits and snapshots. Pure.

A manifest is the file of one commit and a checkpoint that of one snapshot, both JSON in UTF-8. Both
have a `format`, which increases when older programs would read the table incorrectly. Unknown
members are ignored, and members with value null are omitted.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.errors import NewerTable
from spark_jobs.storage.table_store import is_inside
from spark_jobs.tables.manifest import Commit, DataFile, Snapshot

FORMAT: Final = 1
"""The format that this program writes, and the newest that it reads."""

_FILE_FIELDS: Final[Mapping[str, type]] = {
    "path": str,
    "records": int,
    "bytes": int,
    "topic": str,
    "partition": int,
    "date": str,
    "hour": int,
    "offset_min": int,
    "offset_max": int,
    "time_min_ms": int,
    "time_max_ms": int,
}


class MalformedManifest(ValueError):
    """A file has invalid content, which the message describes."""


def write_commit(commit: Commit) -> bytes:
    """The manifest of a commit."""
    return _write(
        {
            "version": commit.version,
            "parent": commit.version - 1,
            "kind": commit.kind,
            "run": commit.run,
            "committed_ms": commit.committed_ms,
            "code_version": commit.code_version,
            "records": commit.records,
            "position": commit.position,
            "added": [_file_document(file) for file in commit.added],
            "removed": commit.removed,
            "report": commit.report,
            "abandoned": commit.abandoned,
            "oldest": commit.oldest,
        }
    )


def read_commit(data: bytes, version: int) -> Commit:
    """The commit in the manifest of a version.

    Raises:
        MalformedManifest: it is malformed, or of another version.
        NewerTable: its format is newer than this program.
    """
    document = _read(data, version)
    if _member(document, "parent", int) != version - 1:
        raise MalformedManifest(f"parent is {document['parent']}")
    commit = Commit(
        version=version,
        kind=_member(document, "kind", str),
        run=_member(document, "run", str),
        position=_member(document, "position", dict),
        added=tuple(map(_read_file, _member(document, "added", list))),
        removed=_string_list(document, "removed"),
        committed_ms=_member(document, "committed_ms", int),
        code_version=_member(document, "code_version", str),
        report=_member(document, "report", dict),
        abandoned=_string_list(document, "abandoned"),
        oldest=_member(document, "oldest", int),
    )
    if _member(document, "records", int) != commit.records:
        raise MalformedManifest(
            f"records is {document['records']}, but its files have {commit.records}"
        )
    return commit


def write_checkpoint(snapshot: Snapshot) -> bytes:
    """The checkpoint of a snapshot; deterministic."""
    return _write(
        {
            "version": snapshot.version,
            "committed_ms": snapshot.committed_ms,
            "oldest": snapshot.oldest,
            "position": snapshot.position,
            "files": [_file_document(file) for file in snapshot.files],
        }
    )


def read_checkpoint(data: bytes, version: int) -> Snapshot:
    """The snapshot in the checkpoint of a version; raises as `read_commit`."""
    document = _read(data, version)
    return Snapshot(
        version=version,
        position=_member(document, "position", dict),
        files=tuple(map(_read_file, _member(document, "files", list))),
        committed_ms=_member(document, "committed_ms", int),
        oldest=_member(document, "oldest", int),
        checkpoint=version,
    )


def _write(document: dict[str, Any]) -> bytes:
    text = json.dumps({"format": FORMAT} | document, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _read(data: bytes, version: int) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedManifest(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedManifest("not a JSON object")
    written = _member(document, "format", int)
    if written > FORMAT:
        raise NewerTable(f"format is {written}; this program reads formats up to {FORMAT}")
    if _member(document, "version", int) != version:
        raise MalformedManifest(f"version is {document['version']}")
    return document


def _member(document: dict[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    # The exact type, because bool is a subclass of int.
    if type(value) is not kind:
        raise MalformedManifest(f"{name} is {value!r}")
    return value


def _string_list(document: dict[str, Any], name: str) -> tuple[str, ...]:
    strings = _member(document, name, list)
    if not all(isinstance(item, str) for item in strings):
        raise MalformedManifest(f"{name} is {strings!r}")
    return tuple(strings)


def _file_document(file: DataFile) -> dict[str, Any]:
    return {name: value for name, value in file._asdict().items() if value is not None}


def _read_file(document: Any) -> DataFile:
    if not isinstance(document, dict):
        raise MalformedManifest(f"{document!r} is not a file entry")
    fields = {name: document[name] for name in _FILE_FIELDS if name in document}
    for name, value in fields.items():
        if type(value) is not _FILE_FIELDS[name]:
            raise MalformedManifest(f"{name} of a file is {value!r}")
    if not {"path", "records", "bytes"} <= fields.keys():
        raise MalformedManifest(f"{document!r} is not a file entry")
    if not is_inside(fields["path"]):
        raise MalformedManifest(f"path {fields['path']!r} is not inside the table")
    return DataFile(**fields)
