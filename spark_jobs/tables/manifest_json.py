"""Commits and snapshots as the files that they are kept in. Pure.

A manifest is the file of one commit, JSON in UTF-8; a checkpoint that of one snapshot. Both have a
`format`: it grows when a program that does not know of a change would read the table wrongly. Keys
that are not known are passed over, and those whose value would be null are left out.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.errors import NewerTable
from spark_jobs.storage.table_store import is_inside
from spark_jobs.tables.manifest import Commit, DataFile, Snapshot

FORMAT: Final = 1
"""What this program writes, and the newest that it reads."""

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


class Malformed(ValueError):
    """A file is not what it should be; the message says what."""


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
    """The commit of a manifest that is kept under a version.

    Raises:
        Malformed: it does not parse, or is of another version.
        NewerTable: its format is newer than this program.
    """
    document = _read(data, version)
    if _take(document, "parent", int) != version - 1:
        raise Malformed(f"its parent is {document['parent']}")
    commit = Commit(
        version=version,
        kind=_take(document, "kind", str),
        run=_take(document, "run", str),
        position=_take(document, "position", dict),
        added=tuple(map(_read_file, _take(document, "added", list))),
        removed=_take_strings(document, "removed"),
        committed_ms=_take(document, "committed_ms", int),
        code_version=_take(document, "code_version", str),
        report=_take(document, "report", dict),
        abandoned=_take_strings(document, "abandoned"),
        oldest=_take(document, "oldest", int),
    )
    if _take(document, "records", int) != commit.records:
        raise Malformed(f"it has {document['records']} records, and its files {commit.records}")
    return commit


def write_checkpoint(snapshot: Snapshot) -> bytes:
    """The checkpoint of a snapshot: the same bytes, whoever writes it."""
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
    """The snapshot of a checkpoint that is kept under a version; raises as `read_commit`."""
    document = _read(data, version)
    return Snapshot(
        version=version,
        position=_take(document, "position", dict),
        files=tuple(map(_read_file, _take(document, "files", list))),
        committed_ms=_take(document, "committed_ms", int),
        oldest=_take(document, "oldest", int),
        checkpoint=version,
    )


def _write(document: dict[str, Any]) -> bytes:
    text = json.dumps({"format": FORMAT} | document, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _read(data: bytes, version: int) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Malformed("it is not a JSON object")
    written = _take(document, "format", int)
    if written > FORMAT:
        raise NewerTable(f"its format is {written}, and this program reads up to {FORMAT}")
    if _take(document, "version", int) != version:
        raise Malformed(f"it says that it is version {document['version']}")
    return document


def _take(document: dict[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    # By the very type: JSON's true is no number.
    if type(value) is not kind:
        raise Malformed(f"{name} is {value!r}")
    return value


def _take_strings(document: dict[str, Any], name: str) -> tuple[str, ...]:
    strings = _take(document, name, list)
    if not all(isinstance(item, str) for item in strings):
        raise Malformed(f"{name} is {strings!r}")
    return tuple(strings)


def _file_document(file: DataFile) -> dict[str, Any]:
    return {name: value for name, value in file._asdict().items() if value is not None}


def _read_file(document: Any) -> DataFile:
    if not isinstance(document, dict):
        raise Malformed(f"{document!r} is no file")
    fields = {name: document[name] for name in _FILE_FIELDS if name in document}
    for name, value in fields.items():
        if type(value) is not _FILE_FIELDS[name]:
            raise Malformed(f"{name} of a file is {value!r}")
    if not {"path", "records", "bytes"} <= fields.keys():
        raise Malformed(f"{document!r} is no file")
    if not is_inside(fields["path"]):
        raise Malformed(f"the path {fields['path']!r} may lead out of the table")
    return DataFile(**fields)
