"""The lock and the owner of a data directory, and the topic id of a partition folder.

The latter two are Kafka's text files, and never change after they are written.
"""

import base64
import binascii
import fcntl
import os
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from logbroker.errors import ConfigurationError, DataDirectoryInUse
from logbroker.storage.file_writes import replace_file, write_durably

LOCK_NAME: Final = ".lock"
META_NAME: Final = "meta.properties"
META_VERSION: Final = "0"

PARTITION_METADATA_NAME: Final = "partition.metadata"
PARTITION_METADATA_VERSION: Final = "0"


class DirectoryIdentity(NamedTuple):
    """`meta.properties` of a data directory: `broker.id=`, `cluster.id=`, `directory.id=` lines.

    Written when a broker first uses the directory.

    Source: Kafka, `MetaProperties.java`, version 0 (brokers without KRaft).
    """

    cluster_id: str
    broker_id: int
    directory_id: str


def read_directory_identity(path: Path) -> DirectoryIdentity | None:
    """Return the owner of the directory; None if it is unused.

    Raises:
        ConfigurationError: `meta.properties` has another version or is incomplete.
    """
    file = path / META_NAME
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    try:
        fields = _fields(lines, "=")
        if fields["version"] != META_VERSION:
            raise ValueError(f"version is {fields['version']}; supported: {META_VERSION}")
        broker_id = int(fields["broker.id"])
        return DirectoryIdentity(fields["cluster.id"], broker_id, fields["directory.id"])
    except KeyError as missing:
        raise ConfigurationError(f"{file} has no {missing}") from None
    except ValueError as error:
        raise ConfigurationError(f"{file} is not readable: {error}") from None


def write_directory_identity(path: Path, identity: DirectoryIdentity) -> None:
    """Store the owner of the directory durably."""
    lines = (
        f"broker.id={identity.broker_id}",
        f"cluster.id={identity.cluster_id}",
        f"directory.id={identity.directory_id}",
        f"version={META_VERSION}",
    )
    replace_file(path / META_NAME, "".join(f"{line}\n" for line in lines).encode())


def new_directory_id() -> str:
    """Return 16 random bytes in base64url, as in Kafka."""
    return encode_uuid(uuid4())


def read_topic_id(folder: Path) -> UUID | None:
    """Return the topic id of a partition folder; None if the folder has none.

    Raises:
        ConfigurationError: `partition.metadata` has another version or is invalid.
    """
    file = folder / PARTITION_METADATA_NAME
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    try:
        fields = _fields(lines, ":")
        if fields["version"] != PARTITION_METADATA_VERSION:
            version = fields["version"]
            raise ValueError(f"version is {version}; supported: {PARTITION_METADATA_VERSION}")
        return _decode_uuid(fields["topic_id"])
    except KeyError as missing:
        raise ConfigurationError(f"{file} has no {missing}") from None
    except ValueError as error:
        raise ConfigurationError(f"{file} is not readable: {error}") from None


def lock_directory(path: Path) -> int:
    """Lock a data directory for this process; returns the descriptor of its lock file.

    Raises:
        DataDirectoryInUse: another process holds the lock.
    """
    file = path / LOCK_NAME
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataDirectoryInUse(f"{path} is in use: another process holds {file}") from None
    return descriptor


def has_topic_id(folder: Path) -> bool:
    """Return whether a partition folder has a valid topic id."""
    try:
        return read_topic_id(folder) is not None
    except ConfigurationError:
        return False


def write_topic_id(folder: Path, topic_id: UUID) -> None:
    """Write the topic id of a folder: `partition.metadata`, lines `version`, `topic_id`.

    It is the first file of a new folder, and durable once the folder is synced.

    Source: Kafka, `PartitionMetadataFile.java` (KIP-516).
    """
    lines = (f"version: {PARTITION_METADATA_VERSION}", f"topic_id: {encode_uuid(topic_id)}")
    content = "".join(f"{line}\n" for line in lines).encode()
    write_durably(folder / PARTITION_METADATA_NAME, content)


def encode_uuid(uuid: UUID) -> str:
    """Return an id in Kafka's notation of 22 characters."""
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def _decode_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not an id: {error}") from None


def _fields(lines: list[str], separator: str) -> dict[str, str]:
    rows = [line for line in lines if line and not line.startswith("#")]
    pairs = [row.partition(separator) for row in rows]
    return {name.strip(): value.strip() for name, _, value in pairs}
