"""Whose a data directory is, and which topic a partition's folder belongs to.

Both are small text files that Kafka has, too, and that never change once they are written.
"""

import base64
import binascii
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from logbroker.errors import ConfigurationError
from logbroker.storage.file_writes import replace_file, write_durably

META_NAME: Final = "meta.properties"
META_VERSION: Final = "0"

PARTITION_METADATA_NAME: Final = "partition.metadata"
PARTITION_METADATA_VERSION: Final = "0"


class DirectoryIdentity(NamedTuple):
    """`meta.properties` of a data directory: `broker.id=`, `cluster.id=`, `directory.id=` lines.

    Made when a broker first uses the directory, replaced as a whole, never changed.

    Source: Kafka, `MetaProperties.java`, version 0 (brokers without KRaft).
    """

    cluster_id: str
    broker_id: int
    directory_id: str


def read_directory_identity(path: Path) -> DirectoryIdentity | None:
    """Whose the directory is; none when nobody has used it yet.

    Raises:
        ConfigurationError: `meta.properties` is of another version, or lacks something.
    """
    file = path / META_NAME
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        return None
    try:
        fields = _fields(lines, "=")
        if fields["version"] != META_VERSION:
            raise ValueError(f"version is {fields['version']}, known is {META_VERSION}")
        broker_id = int(fields["broker.id"])
        return DirectoryIdentity(fields["cluster.id"], broker_id, fields["directory.id"])
    except KeyError as missing:
        raise ConfigurationError(f"{file} has no {missing}") from None
    except ValueError as error:
        raise ConfigurationError(f"{file} is not readable: {error}") from None


def write_directory_identity(path: Path, identity: DirectoryIdentity) -> None:
    """Make the directory somebody's, durably."""
    lines = (
        f"broker.id={identity.broker_id}",
        f"cluster.id={identity.cluster_id}",
        f"directory.id={identity.directory_id}",
        f"version={META_VERSION}",
    )
    replace_file(path / META_NAME, "".join(f"{line}\n" for line in lines).encode())


def new_directory_id() -> str:
    """16 random bytes in base64url, as Kafka has them."""
    return encode_uuid(uuid4())


def read_topic_id(folder: Path) -> UUID | None:
    """The topic that a partition's folder belongs to; none when the folder does not say.

    Raises:
        ConfigurationError: `partition.metadata` is of another version, or says something else.
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
            raise ValueError(f"version is {version}, known is {PARTITION_METADATA_VERSION}")
        return _decode_uuid(fields["topic_id"])
    except KeyError as missing:
        raise ConfigurationError(f"{file} has no {missing}") from None
    except ValueError as error:
        raise ConfigurationError(f"{file} is not readable: {error}") from None


def write_topic_id(folder: Path, topic_id: UUID) -> None:
    """Say which topic the folder belongs to: `partition.metadata`, lines `version`, `topic_id`.

    Durable once the folder's names are: it is written before anything else in a new folder.

    Source: Kafka, `PartitionMetadataFile.java` (KIP-516).
    """
    lines = (f"version: {PARTITION_METADATA_VERSION}", f"topic_id: {encode_uuid(topic_id)}")
    content = "".join(f"{line}\n" for line in lines).encode()
    write_durably(folder / PARTITION_METADATA_NAME, content)


def encode_uuid(uuid: UUID) -> str:
    """The 22 characters that Kafka writes ids with."""
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def _decode_uuid(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no id: {error}") from None


def _fields(lines: list[str], separator: str) -> dict[str, str]:
    rows = [line for line in lines if line and not line.startswith("#")]
    pairs = [row.partition(separator) for row in rows]
    return {name.strip(): value.strip() for name, _, value in pairs}
