"""Encodes lengths and strings in the legacy and in the compact form of the protocol.

Legacy lengths are fixed-size integers, -1 for null. Compact lengths (flexible versions) are
unsigned varints of the length plus one, 0 for null.

Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
"""

import struct
from functools import lru_cache
from typing import Final

EMPTY_TAGS: Final = b"\x00"
"""No tagged fields: the end of every structure in a flexible version."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@lru_cache(maxsize=4096)  # a producer's batches have few different lengths
def encode_uvarint(value: int) -> bytes:
    """Encode a number in [0, 2**32) in one to five bytes, low seven bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_count(count: int, *, flexible: bool) -> bytes:
    """Encode the length of an array or of record data."""
    return encode_uvarint(count + 1) if flexible else _INT32.pack(count)


def encode_string(text: str, *, flexible: bool) -> bytes:
    """Encode a string after its length in UTF-8 bytes."""
    data = text.encode()
    length = encode_uvarint(len(data) + 1) if flexible else _INT16.pack(len(data))
    return length + data


def encode_nullable_string(text: str | None, *, flexible: bool) -> bytes:
    """Encode a string or null."""
    if text is not None:
        return encode_string(text, flexible=flexible)
    return b"\x00" if flexible else _INT16.pack(-1)
