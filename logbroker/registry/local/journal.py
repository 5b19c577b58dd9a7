"""The metadata of a single broker on disk: a snapshot, and a journal of the changes since.

`registry.json` is the snapshot, and names its journal: `registry-<id>.journal`. Each line of that
is one change of `logbroker.registry.local.document`:

    <CRC-32 of the JSON, 8 hex digits> <JSON>

A change appends a line and flushes it. Once the journal is longer than its snapshot, the next
change writes a snapshot instead, which names a new journal, and deletes the old one.

A crash leaves the old or the new snapshot, at most a `.tmp` that the next snapshot overwrites, a
journal that no snapshot names, which the next one deletes, or an incomplete last line. That line
was not acknowledged: it is ignored, and the next change writes a snapshot.
"""

import logging
import os
import zlib
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final
from uuid import uuid4

from logbroker.registry.cluster import new_cluster_id
from logbroker.registry.local.document import (
    DocumentEncoder,
    RegistryChange,
    RegistryDocument,
    format_change,
    parse_change,
    parse_metadata,
)
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable
from logbroker.storage.file_writes import replace_file, sync_directory

log = logging.getLogger("logbroker.registry")

JOURNAL_BYTES_MIN: Final = 64 * 1024
"""A shorter journal stays, however short its snapshot is."""

_PREFIX_BYTES: Final = 9
"""The checksum and a space."""


class MetadataFiles:
    """The current document, and its files; no file stays open between two changes."""

    def __init__(self, path: Path, document: RegistryDocument, journal_bytes: int | None) -> None:
        """Continue with a journal of `journal_bytes`; None if nothing can be appended to it."""
        self.document = document
        self._path = path
        self._encoder = DocumentEncoder()
        self._journal_bytes = journal_bytes
        self._snapshot_bytes = path.stat().st_size

    @classmethod
    def open(cls, path: Path, broker_id: int) -> "MetadataFiles":
        """Read the files at `path`, the snapshot; create it for `broker_id` if it is missing.

        Raises:
            OSError: a file cannot be read or written.
            ValueError: a file is malformed.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = RegistryDocument(new_cluster_id(), broker_id, 0, TopicTable(), _new_id())
            replace_file(path, DocumentEncoder().encode(new))
        document = parse_metadata(path.read_bytes())
        if document.journal is None:
            return cls(path, document, None)
        journal = _journal_path(path, document.journal)
        content = journal.read_bytes() if journal.exists() else b""
        try:
            changes, size = _parse_journal(content, document.broker_id)
        except ValueError as error:
            raise ValueError(f"{journal} is malformed: {error}") from None
        if size < len(content):
            log.warning(
                "incomplete last change is ignored file=%s bytes=%d", journal, len(content) - size
            )
        topics: dict[str, Topic | None] = {}
        next_producer_id = document.next_producer_id
        for change in changes:
            topics.update(change.topics)
            next_producer_id = max(next_producer_id, change.next_producer_id or 0)
        document = RegistryChange(topics, next_producer_id).apply(document)
        return cls(path, document, size if size == len(content) else None)

    def store(self, change: RegistryChange) -> None:
        """Make a change durable, then current.

        Raises:
            OSError: the disk failed; the document is unchanged.
        """
        changed = change.apply(self.document)
        if self._journal_bytes is None or self._journal_bytes > max(
            JOURNAL_BYTES_MIN, self._snapshot_bytes
        ):
            changed = self._write_snapshot(changed)
        else:
            self._append(change, self._journal_bytes)
        self.document = changed

    def _write_snapshot(self, document: RegistryDocument) -> RegistryDocument:
        """Write a snapshot with a new journal; returns it."""
        document = replace(document, journal=_new_id())
        content = self._encoder.encode(document)
        replace_file(self._path, content)
        self._snapshot_bytes, self._journal_bytes = len(content), 0
        for journal in self._path.parent.glob(_journal_path(self._path, "*").name):
            with suppress(OSError):
                journal.unlink()
        return document

    def _append(self, change: RegistryChange, size: int) -> None:
        assert self.document.journal is not None
        path = _journal_path(self._path, self.document.journal)
        line = _line_of(format_change(change))
        # Until it succeeds: what a failure leaves in the file is unknown.
        self._journal_bytes = None
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _append_durably(descriptor, line)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        finally:
            os.close(descriptor)
        if size == 0:
            sync_directory(path.parent)
        self._journal_bytes = size + len(line)


def _append_durably(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def _journal_path(path: Path, journal: str) -> Path:
    return path.with_name(f"{path.stem}-{journal}.journal")


def _new_id() -> str:
    """Return an id that no file has, not even one that was left by a restored backup."""
    return uuid4().hex[:16]


def _parse_journal(content: bytes, broker_id: int) -> tuple[list[RegistryChange], int]:
    """Return the changes, and the size of their lines, without an incomplete last line.

    A write that was cut off ends without a line end, or contains zeros of blocks that were not
    written. Anything else is damage: ignoring it would delete the data of the topics that it names.
    """
    changes: list[RegistryChange] = []
    size = 0
    lines = BytesIO(content).readlines()
    for number, line in enumerate(lines, 1):
        text = _checked_text(line)
        if text is None:
            if number == len(lines) and (not line.endswith(b"\n") or b"\0" in line):
                break
            raise ValueError(f"line {number} does not match its checksum")
        changes.append(parse_change(text, broker_id))
        size += len(line)
    return changes, size


def _line_of(text: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _checked_text(line: bytes) -> bytes | None:
    """Return the JSON of a line; None if it is incomplete or does not match its checksum."""
    text = line[_PREFIX_BYTES:-1]
    return text if line == _line_of(text) else None
