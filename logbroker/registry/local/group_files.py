"""Consumer groups of a single broker: one file per group.

The file name is `<SHA-256 of the group id>.json`, because a group id may contain characters that a
file name cannot. The file holds one JSON object:

{"version": 1, "group_id": "...", "membership": null, "offsets": {"topic": {"0": "42"}},
 "membership_ms": 0, "committed_ms": {"topic": {"0": 1763712000000}}}

The parts are encoded by `logbroker.registry.group_payloads`. In files of older versions, which have
no `membership_ms` and `committed_ms`, both are the time of the last change. Each change replaces
the whole file. A crash leaves the old or the new file, and at most a `.tmp` that the next change
overwrites.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from logbroker.groups.stored import CommittedOffset, StoredGroup, TopicPartition
from logbroker.registry.group_payloads import (
    format_offset,
    membership_fields,
    parse_membership,
    parse_offset,
)
from logbroker.storage.file_writes import replace_file, sync_directory

VERSION: Final = 1


class GroupFiles:
    """The directory of all groups; a change is durable when its method returns.

    Raises:
        OSError: the disk failed; the old or the new file remains.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> list[StoredGroup]:
        """Return every group; creates the directory if it is missing.

        Raises:
            ValueError: a file is not a valid group; the message names it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        sync_directory(self._folder.parent)
        return [_read(path) for path in sorted(self._folder.glob("*.json"))]

    def store(self, group: StoredGroup) -> None:
        """Write a group, replacing its file."""
        replace_file(self._path(group.group_id), json.dumps(_group_fields(group)).encode())

    def delete(self, group_id: str) -> None:
        """Delete a group; a missing one is ignored."""
        self._path(group_id).unlink(missing_ok=True)
        sync_directory(self._folder)

    def _path(self, group_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(group_id.encode()).hexdigest()}.json"


def _read(path: Path) -> StoredGroup:
    try:
        changed_ms = path.stat().st_mtime_ns // 1_000_000
        return _parse_group(json.loads(path.read_bytes()), changed_ms)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a valid consumer group: {error}") from None


def _group_fields(group: StoredGroup) -> dict[str, Any]:
    offsets: dict[str, dict[str, str]] = {}
    times: dict[str, dict[str, int]] = {}
    for (topic, partition), committed in group.offsets.items():
        offsets.setdefault(topic, {})[str(partition)] = format_offset(committed)
        times.setdefault(topic, {})[str(partition)] = committed.committed_ms
    membership = group.membership
    return {
        "version": VERSION,
        "group_id": group.group_id,
        "membership": None if membership is None else membership_fields(membership),
        "offsets": offsets,
        "membership_ms": 0 if membership is None else membership.stored_ms,
        "committed_ms": times,
    }


def _parse_group(fields: dict[str, Any], changed_ms: int) -> StoredGroup:
    if fields["version"] != VERSION:
        raise ValueError(f"unsupported version {fields['version']!r}; allowed: {VERSION}")
    membership = fields["membership"]
    membership_ms = int(fields.get("membership_ms", changed_ms))
    times = fields.get("committed_ms", {})
    offsets: dict[TopicPartition, CommittedOffset] = {
        (topic, int(partition)): replace(
            parse_offset(text),
            committed_ms=int(times.get(topic, {}).get(partition, changed_ms)),
        )
        for topic, partitions in fields["offsets"].items()
        for partition, text in partitions.items()
    }
    return StoredGroup(
        group_id=str(fields["group_id"]),
        membership=None
        if membership is None
        else replace(parse_membership(membership), stored_ms=membership_ms),
        offsets=offsets,
    )
