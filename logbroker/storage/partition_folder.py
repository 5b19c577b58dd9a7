"""The folder of a partition's log: `<topic>-<partition>`, and `*-delete` once it is deleted."""

import re
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from logbroker.storage.checkpoints import TopicPartition
from logbroker.storage.identity import has_topic_id, read_topic_id
from logbroker.storage.segment import LOG_SUFFIX

DELETE_SUFFIX: Final = "-delete"
FILE_NAME_CHARS_MAX: Final = 255

_FOLDER_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")


def partition_of(folder: Path) -> TopicPartition | None:
    """Return the partition of a folder by its name; None for all other files and folders."""
    name = _FOLDER_NAME.fullmatch(folder.name)
    return (name[1], int(name[2])) if name and folder.is_dir() else None


def has_records(folder: Path) -> bool:
    """Return whether the log has a record."""
    return any(path.stat().st_size for path in folder.glob(f"*{LOG_SUFFIX}"))


def is_left_over(folder: Path, topic_id: UUID) -> bool:
    """Return whether a failed creation of a log of the topic left its folder, without records."""
    if not folder.is_dir() or (has_topic_id(folder) and read_topic_id(folder) != topic_id):
        return False
    # An empty log at a later offset had records.
    return all(
        not file.stat().st_size and not file.stem.strip("0")
        for file in folder.glob(f"*{LOG_SUFFIX}")
    )


def rename_to_delete(folder: Path, partition: TopicPartition) -> Path:
    """Rename a folder, which is removed later, or at the next start; returns its new path."""
    topic, number = partition
    suffix = f"-{number}.{uuid4().hex}{DELETE_SUFFIX}"
    return folder.rename(folder.with_name(topic[: FILE_NAME_CHARS_MAX - len(suffix)] + suffix))
