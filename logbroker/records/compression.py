"""The compression codecs of record batches, each with a limit of the decompressed size.

The bytes after the batch header are one compressed block. A few bytes may decompress to
gigabytes, so the caller passes a limit.

Source: Kafka documentation, "Message Format", attributes bits 0-2; KIP-110 (zstd).
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import lz4.frame
import snappy
import zstandard

from logbroker.errors import CorruptBatch
from logbroker.records.batch import Buffer


class Codec(IntEnum):
    """The codec numbers of the batch attributes; 5 to 7 are unassigned."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress `data` into one block that every Kafka client can read."""
    return _COMPRESSORS[codec](data)


def decompress(codec: Codec, data: Buffer, bytes_max: int) -> bytes:
    """Decompress `data`, one whole block of `codec`.

    Raises:
        CorruptBatch: the block is corrupt, truncated, followed by other bytes, or larger than
            `bytes_max` when decompressed.
    """
    return _DECOMPRESSORS[codec](data, bytes_max)


def _keep(data: bytes) -> bytes:
    return data


def _copy(data: Buffer, bytes_max: int) -> bytes:
    _check_size(Codec.NONE, len(data), bytes_max)
    return bytes(data)


def _check_size(codec: Codec, size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise CorruptBatch(f"{codec.name} block decompresses to more than {bytes_max} bytes")


_GZIP_WBITS: Final = 31
"""zlib's largest window (15) plus 16, which selects gzip's header and trailer."""


def _compress_gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=_GZIP_WBITS)


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        # One byte above the limit distinguishes a block that fits exactly from a larger one.
        plain = decompressor.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise CorruptBatch(f"GZIP block is damaged: {error}") from None
    _check_size(Codec.GZIP, len(plain), bytes_max)
    _check_end(Codec.GZIP, decompressor.eof, len(decompressor.unused_data))
    return plain


def _check_end(codec: Codec, has_end: bool, bytes_left: int) -> None:
    if not has_end:
        raise CorruptBatch(f"{codec.name} block is cut off")
    if bytes_left:
        raise CorruptBatch(f"{codec.name} block is followed by {bytes_left} other bytes")


_LZ4_EXPANSION_MAX: Final = 255
"""An LZ4 length byte expands to at most 255 bytes, which bounds the output buffer."""

_LZ4_FRAME_SLACK: Final = 1024


def _compress_lz4(data: bytes) -> bytes:
    # Java's reader rejects linked blocks.
    return bytes(lz4.frame.compress(data, block_linked=False))


def _decompress_lz4(data: Buffer, bytes_max: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    room = min(bytes_max + 1, len(data) * _LZ4_EXPANSION_MAX + _LZ4_FRAME_SLACK)
    try:
        plain = bytes(decompressor.decompress(data, max_length=room))
    except RuntimeError as error:  # the only exception of python-lz4
        raise CorruptBatch(f"LZ4 block is damaged: {error}") from None
    _check_size(Codec.LZ4, len(plain), bytes_max)
    _check_end(Codec.LZ4, decompressor.eof, len(decompressor.unused_data or b""))
    return plain


def _compress_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def _decompress_zstd(data: Buffer, bytes_max: int) -> bytes:
    try:
        announced = zstandard.frame_content_size(data)
        # -1: the size is unknown, as the writer streamed; `max_output_size` is the limit.
        _check_size(Codec.ZSTD, announced, bytes_max)
        return zstandard.ZstdDecompressor().decompress(
            data, max_output_size=bytes_max, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise CorruptBatch(
            f"ZSTD block is damaged, cut off or larger than {bytes_max} bytes: {error}"
        ) from None


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
"""No raw block begins with it: its first element would copy bytes before the start."""

_XERIAL_HEADER_BYTES: Final = 16
"""The magic, the format's version and the oldest version that can read it (two int32)."""

_XERIAL_LENGTH: Final = struct.Struct(">i")


def _compress_snappy(data: bytes) -> bytes:
    # A raw block, as in librdkafka; every client reads it, also those that write xerial framing.
    return bytes(snappy.compress(data))


def _decompress_snappy(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        return _decompress_xerial(view, bytes_max)
    return _decompress_snappy_block(view, bytes_max)


def _decompress_xerial(view: memoryview, bytes_max: int) -> bytes:
    """Decompress snappy-java's framing: a header, then blocks with a length prefix."""
    plain: list[bytes] = []
    size = 0
    position = _XERIAL_HEADER_BYTES
    while position != len(view):
        start, position = _xerial_block(view, position)
        plain.append(_decompress_snappy_block(view[start:position], bytes_max - size))
        size += len(plain[-1])
    return b"".join(plain)


def _xerial_block(view: memoryview, position: int) -> tuple[int, int]:
    if position + _XERIAL_LENGTH.size > len(view):
        raise CorruptBatch(f"SNAPPY framing is cut off at {position} of {len(view)} bytes")
    (length,) = _XERIAL_LENGTH.unpack_from(view, position)
    start = position + _XERIAL_LENGTH.size
    if not 0 < length <= len(view) - start:
        raise CorruptBatch(f"SNAPPY framing at {position} has the invalid length {length}")
    return start, start + length


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    # The library allocates the announced size before it reads the block.
    _check_size(Codec.SNAPPY, _snappy_announced_size(block), bytes_max)
    try:
        return bytes(snappy.decompress(block))
    except snappy.UncompressError as error:
        raise CorruptBatch(f"SNAPPY block is damaged: {error.__cause__}") from None


def _snappy_announced_size(block: memoryview) -> int:
    """Return the decompressed size in the block's preamble, an unsigned varint."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise CorruptBatch("SNAPPY block has no readable size")


_COMPRESSORS: Final[dict[Codec, Callable[[bytes], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
