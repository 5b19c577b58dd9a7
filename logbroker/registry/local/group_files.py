"""Consumer groups of a broker that runs alone: a file for each.

A file is named `<SHA-256 of the group's name>.json`, since a group may be named by characters
that no file can have. It holds one JSON object:

{"version": 1, "group_id": "...", "membership": null, "offsets": {"topic": {"0": "42"}}}

with the parts of `logbroker.registry.group_payloads`. It is replaced as a whole, so a crash
leaves the old or the new one, and at most a `.tmp` that the next replacement overwrites.
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
from logbroker.storage.durable_file import replace_file, sync_directory

VERSION: Final = 1


class GroupFiles:
    """The folder of all groups; a change is durable when its call returns.

    Raises:
        OSError: the disk refused; the old file may be there or the new one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> list[StoredGroup]:
        """Every group; the folder is made when it is not there.

        Raises:
            ValueError: a file holds no group; the message names it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        sync_directory(self._folder.parent)
        return [_read(path) for path in sorted(self._folder.glob("*.json"))]

    def store(self, group: StoredGroup) -> None:
        """Put a group in the place of what its file held."""
        replace_file(self._path(group.group_id), json.dumps(_group_fields(group)).encode())

    def delete(self, group_id: str) -> None:
        """Forget a group that is there or not."""
        self._path(group_id).unlink(missing_ok=True)
        sync_directory(self._folder)

    def _path(self, group_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(group_id.encode()).hexdigest()}.json"


def _read(path: Path) -> StoredGroup:
    try:
        return _parse_group(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} holds no consumer group: {error}") from None


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
        raise ValueError(f"its version is {fields['version']!r}; known is {VERSION}")
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
