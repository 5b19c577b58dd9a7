"""Reads the fields of one frame, each only where the frame holds all of it."""

import struct
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from logbroker.errors import MalformedRequest

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

UVARINT_BYTES_MAX: Final = 5
UUID_BYTES: Final = 16
TAG_BYTES_MIN: Final = 2


class FrameReader:
    """A position in the frame `buffer[position:end]`; every read moves it on.

    `is_flexible` says how lengths are written and whether structures end in tags. Every read
    raises MalformedRequest when the frame ends first or the bytes cannot be what is asked for.
    Bytes behind the last field are nobody's error: Kafka passes over them, and librdkafka 2.16
    sends some behind its Metadata requests.
    """

    __slots__ = ("_buffer", "end", "is_flexible", "position")

    def __init__(
        self, buffer: memoryview, position: int, end: int, *, is_flexible: bool = False
    ) -> None:
        self._buffer = buffer
        self.position = position
        self.end = end
        self.is_flexible = is_flexible

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Fields of fixed size."""
        position = self.position
        after = position + layout.size
        if after > self.end:
            raise self._cut(layout.size)
        self.position = after
        return layout.unpack_from(self._buffer, position)

    def skip(self, count: int) -> None:
        """Pass over `count` bytes, whatever they are."""
        if count > self.end - self.position:
            raise self._cut(count)
        self.position += count

    def uvarint(self) -> int:
        """An unsigned varint in [0, 2**32)."""
        position = self.position
        if position < self.end and (byte := self._buffer[position]) < 0x80:
            self.position = position + 1
            return byte
        return self._long_uvarint()

    def legacy_string(self) -> str | None:
        """A text whose length is an int16 in every version."""
        return self._text(self.take(_INT16)[0])

    def nullable_string(self) -> str | None:
        """A text, or none."""
        length = self.uvarint() - 1 if self.is_flexible else self.take(_INT16)[0]
        return self._text(length)

    def string(self) -> str:
        """A text that may not be null."""
        text = self.nullable_string()
        if text is None:
            raise MalformedRequest(f"null before byte {self.position}, where a string must be")
        return text

    def uuid(self) -> UUID:
        """Sixteen bytes of an id."""
        start = self.position
        self.skip(UUID_BYTES)
        return _uuid(bytes(self._buffer[start : self.position]))

    def nullable_length(self) -> int:
        """The length before record data or an array; -1 for null. What follows is not checked."""
        length: int = self.uvarint() - 1 if self.is_flexible else self.take(_INT32)[0]
        if length < -1:
            raise MalformedRequest(f"length {length} before byte {self.position}")
        return length

    def nullable_count(self, item_bytes_min: int) -> int:
        """How many items an array has, -1 for null; each takes at least `item_bytes_min` bytes.

        A count that the rest of the frame cannot hold is refused before anything is built.
        """
        count = self.nullable_length()
        if count * item_bytes_min > self.end - self.position:
            raise MalformedRequest(
                f"{count} items of {item_bytes_min} bytes or more "
                f"in {self.end - self.position} bytes"
            )
        return count

    def count(self, item_bytes_min: int) -> int:
        """As `nullable_count`, for an array that may not be null."""
        count = self.nullable_count(item_bytes_min)
        if count < 0:
            raise MalformedRequest(f"null before byte {self.position}, where an array must be")
        return count

    def skip_tags(self) -> int:
        """Pass over the tagged fields that end a structure; how many there were.

        A legacy version has none and no place for them.
        """
        if not self.is_flexible:
            return 0
        count = self.uvarint()
        if count * TAG_BYTES_MIN > self.end - self.position:
            raise MalformedRequest(f"{count} tags in {self.end - self.position} bytes")
        for _ in range(count):
            self.uvarint()
            self.skip(self.uvarint())
        return count

    def _text(self, length: int) -> str | None:
        if length < 0:
            if length == -1:
                return None
            raise MalformedRequest(f"string length {length} before byte {self.position}")
        start = self.position
        after = start + length
        if after > self.end:
            raise self._cut(length)
        self.position = after
        try:
            return str(self._buffer[start:after], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"string at byte {start} is no UTF-8: {error}") from None

    def _long_uvarint(self) -> int:
        value = 0
        for index in range(UVARINT_BYTES_MAX):
            position = self.position + index
            if position >= self.end:
                raise self._cut(index + 1)
            byte = self._buffer[position]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        if byte >= 0x80 or value >= 1 << 32:
            raise MalformedRequest(f"varint at byte {self.position} needs more than 32 bits")
        self.position = position + 1
        return value

    def _cut(self, wanted: int) -> MalformedRequest:
        left = self.end - self.position
        return MalformedRequest(f"{wanted} bytes wanted where {left} are left of the frame")


@lru_cache(maxsize=1024)  # consumers name the same topics in every fetch
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)
