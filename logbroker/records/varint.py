"""Zig-zag varints, the numbers in records: low seven bits first, the high bit marks more bytes.

Zig-zag moves the sign into the lowest bit, so small numbers of either sign are short.

Source: Kafka protocol guide, "Protocol Primitive Types", VARINT and VARLONG.
"""

from logbroker.errors import CorruptBatch
from logbroker.records.batch import Buffer


def read_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Read a number in [-2**31, 2**31) and return it with the offset after it.

    Raises:
        CorruptBatch: `buffer` ends inside the number, or the number needs more than 32 bits.
    """
    if offset < len(buffer) and (byte := buffer[offset]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), offset + 1
    return _read_long(buffer, offset, 32)


def read_varlong(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Read a number in [-2**63, 2**63) and return it with the offset after it.

    Raises:
        CorruptBatch: `buffer` ends inside the number, or the number needs more than 64 bits.
    """
    if offset < len(buffer) and (byte := buffer[offset]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), offset + 1
    return _read_long(buffer, offset, 64)


def encode_varint(value: int) -> bytes:
    """Encode a number in [-2**31, 2**31) in one to five bytes."""
    return _encode(value, 32)


def encode_varlong(value: int) -> bytes:
    """Encode a number in [-2**63, 2**63) in one to ten bytes."""
    return _encode(value, 64)


def _read_long(buffer: Buffer, offset: int, bits: int) -> tuple[int, int]:
    folded = shift = 0
    position = offset
    try:
        while (byte := buffer[position]) & 0x80:
            folded |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if shift >= bits:
                raise CorruptBatch(f"varint at {offset} is longer than {bits} bits allow")
    except IndexError:
        raise CorruptBatch(
            f"varint at {offset} is cut off after {position - offset} bytes"
        ) from None
    folded |= byte << shift
    if folded >> bits:
        raise CorruptBatch(f"varint at {offset} needs more than {bits} bits")
    return (folded >> 1) ^ -(folded & 1), position + 1


def _encode(value: int, bits: int) -> bytes:
    if 0 <= value < 64:
        return _ONE_BYTE[value]
    assert -(1 << (bits - 1)) <= value < 1 << (bits - 1), f"{value} does not fit {bits} bits"
    folded = (value << 1) ^ (value >> (bits - 1))
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


_ONE_BYTE = [bytes((value << 1,)) for value in range(64)]
"""Nearly every length and delta is one of these."""
