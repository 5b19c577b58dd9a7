"""Damages batches in the files of a stopped broker, as bad sectors and careless writers do."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from logbroker.records.batch import CRC_START, HEADER_BYTES, BatchHeader, read_header
from logbroker.records.compression import Codec

_CRC_AT: Final = 17
_MAGIC_AT: Final = 16
_CODEC_AT: Final = 22

_SMALL_RECORD_BYTES: Final = 9
"""A record with a key and a value of a byte each, whose length is its first byte."""


class StoredBatch(NamedTuple):
    """A batch in a segment file."""

    path: Path
    position: int
    header: BatchHeader


Damage = Callable[[bytearray], None]
"""Changes the bytes of one batch, but not their number."""


def stored_batches(data_dir: Path, topic: str, partition: int = 0) -> list[StoredBatch]:
    """Return the batches of a partition in order."""
    folder = next(data_dir.glob(f"**/{topic}-{partition}"))
    return [batch for path in sorted(folder.glob("*.log")) for batch in _batches(path)]


def _batches(path: Path) -> Iterator[StoredBatch]:
    data = path.read_bytes()
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        yield StoredBatch(path, position, header)
        position += header.size


def damage_batch(batch: StoredBatch, damage: Damage) -> None:
    """Change a batch in its file; the broker must be stopped."""
    with batch.path.open("r+b") as file:
        file.seek(batch.position)
        content = bytearray(file.read(batch.header.size))
        damage(content)
        assert len(content) == batch.header.size
        file.seek(batch.position)
        file.write(content)


def flip_bit(batch: bytearray) -> None:
    """Change a bit of the records, so that the CRC does not match."""
    batch[-2] ^= 0x10


def put_garbage(batch: bytearray) -> None:
    """Replace the records by bytes that are none, with a correct CRC."""
    batch[HEADER_BYTES:] = b"\xff" * (len(batch) - HEADER_BYTES)
    _set_codec(batch, Codec.NONE)
    _fix_crc(batch)


def spoil_last_record(batch: bytearray) -> None:
    """Give the last of records with two bytes of key and value no readable length."""
    batch[-_SMALL_RECORD_BYTES:] = b"\1" + batch[1 - _SMALL_RECORD_BYTES :]
    _fix_crc(batch)


def put_false_gzip(batch: bytearray) -> None:
    """Replace the records by bytes that are marked as gzip and are none, with a correct CRC."""
    batch[HEADER_BYTES:] = b"not gzip".ljust(len(batch) - HEADER_BYTES, b".")
    _set_codec(batch, Codec.GZIP)
    _fix_crc(batch)


def set_unknown_magic(batch: bytearray) -> None:
    """Change the message format to one that does not exist; the CRC does not cover it."""
    batch[_MAGIC_AT] = 7


def set_unknown_codec(batch: bytearray) -> None:
    """Mark the records as compressed by a codec that does not exist, with a correct CRC."""
    batch[_CODEC_AT] |= 0x07
    _fix_crc(batch)


DAMAGES: Final[dict[str, Damage]] = {
    "wrong CRC": flip_bit,
    "garbage": put_garbage,
    "false gzip": put_false_gzip,
    "unknown magic": set_unknown_magic,
    "unknown codec": set_unknown_codec,
}


def _set_codec(batch: bytearray, codec: Codec) -> None:
    batch[_CODEC_AT] = batch[_CODEC_AT] & 0xF8 | codec


def _fix_crc(batch: bytearray) -> None:
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
