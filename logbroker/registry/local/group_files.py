"""Consumer groups of a single broker: one file per group.

The file name is `<SHA-256 of the group id>.json`, because a group id may contain characters that a
file name cannot. The file holds one JSON object:

{"version": 1, "group_id": "...", "membership": null, "offsets": {"topic": {"0": "42"}}}

The parts are encoded by `logbroker.registry.group_payloads`. Each change replaces the whole file. A
crash leaves the old or the new file, and at most a `.tmp` that the next change overwrites.
"""

import hashlib
import json
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
        return _parse_group(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a valid consumer group: {error}") from None


def _group_fields(group: StoredGroup) -> dict[str, Any]:
    offsets: dict[str, dict[str, str]] = {}
    for (topic, partition), committed in group.offsets.items():
        offsets.setdefault(topic, {})[str(partition)] = format_offset(committed)
    membership = group.membership
    return {
        "version": VERSION,
        "group_id": group.group_id,
        "membership": None if membership is None else membership_fields(membership),
        "offsets": offsets,
    }


def _parse_group(fields: dict[str, Any]) -> StoredGroup:
    if fields["version"] != VERSION:
        raise ValueError(f"unsupported version {fields['version']!r}; allowed: {VERSION}")
    membership = fields["membership"]
    offsets: dict[TopicPartition, CommittedOffset] = {
        (topic, int(partition)): parse_offset(text)
        for topic, partitions in fields["offsets"].items()
        for partition, text in partitions.items()
    }
    return StoredGroup(
        group_id=str(fields["group_id"]),
        membership=None if membership is None else parse_membership(membership),
        offsets=offsets,
    )
