"""Unsigned LEB128: seven bits a byte, lowest first; a set high bit means that a byte follows."""

from collections.abc import Iterator


class IncompleteNumber(ValueError):
    """The bytes end inside a number."""


def encode_number(number: int) -> bytes:
    """Encode a number, which is not negative."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode_numbers(content: Iterator[int]) -> Iterator[int]:
    """Decode numbers one at a time; of `content`, only the bytes of these are consumed.

    Raises:
        IncompleteNumber: the last byte says that another one follows.
    """
    number = shift = 0
    for byte in content:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise IncompleteNumber("a number has no last byte")
