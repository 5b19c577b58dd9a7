"""Reads the fields of one frame and checks every length against the frame's end."""

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
    """A position in the frame `buffer[position:end]` that every read advances.

    With `is_flexible`, lengths are varints and structures end in tagged fields. Every read raises
    MalformedRequest if the frame ends too early or the bytes are invalid. Bytes after the last
    field are allowed: Kafka skips them, and librdkafka 2.16 sends some after Metadata requests.
    """

    __slots__ = ("_buffer", "end", "is_flexible", "position")

    def __init__(
        self, buffer: memoryview, position: int, end: int, *, is_flexible: bool = False
    ) -> None:
        self._buffer = buffer
        self.position = position
        self.end = end
        self.is_flexible = is_flexible

    def read_fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read fields of fixed size."""
        position = self.position
        after = position + layout.size
        if after > self.end:
            raise self._truncated(layout.size)
        self.position = after
        return layout.unpack_from(self._buffer, position)

    def skip(self, count: int) -> None:
        """Skip `count` bytes."""
        if count > self.end - self.position:
            raise self._truncated(count)
        self.position += count

    def read_uvarint(self) -> int:
        """Read an unsigned varint in [0, 2**32)."""
        position = self.position
        if position < self.end and (byte := self._buffer[position]) < 0x80:
            self.position = position + 1
            return byte
        return self._long_uvarint()

    def read_legacy_string(self) -> str | None:
        """Read a nullable string whose length is an int16 in every version."""
        return self._text(self.read_fields(_INT16)[0])

    def read_nullable_string(self) -> str | None:
        """Read a nullable string."""
        length = self.read_uvarint() - 1 if self.is_flexible else self.read_fields(_INT16)[0]
        return self._text(length)

    def read_string(self) -> str:
        """Read a string that may not be null."""
        text = self.read_nullable_string()
        if text is None:
            raise MalformedRequest(f"null string before byte {self.position}; it is not nullable")
        return text

    def read_uuid(self) -> UUID:
        """Read a UUID of 16 bytes."""
        start = self.position
        self.skip(UUID_BYTES)
        return _uuid(bytes(self._buffer[start : self.position]))

    def read_nullable_length(self) -> int:
        """Read the unchecked length of record data or of an array, -1 for null."""
        length: int = self.read_uvarint() - 1 if self.is_flexible else self.read_fields(_INT32)[0]
        if length < -1:
            raise MalformedRequest(f"length {length} before byte {self.position}")
        return length

    def read_nullable_count(self, item_bytes_min: int) -> int:
        """Read the item count of an array, -1 for null; an item has `item_bytes_min` bytes or more.

        A count that exceeds the rest of the frame is rejected before anything is allocated.
        """
        count = self.read_nullable_length()
        if count * item_bytes_min > self.end - self.position:
            raise MalformedRequest(
                f"{count} items of {item_bytes_min} bytes or more "
                f"in {self.end - self.position} bytes"
            )
        return count

    def read_count(self, item_bytes_min: int) -> int:
        """Read the item count of an array that may not be null; see `read_nullable_count`."""
        count = self.read_nullable_count(item_bytes_min)
        if count < 0:
            raise MalformedRequest(f"null array before byte {self.position}; it is not nullable")
        return count

    def skip_tags(self) -> int:
        """Skip the tagged fields that end a structure and return their number.

        Versions that are not flexible have no tagged fields.
        """
        if not self.is_flexible:
            return 0
        count = self.read_uvarint()
        if count * TAG_BYTES_MIN > self.end - self.position:
            raise MalformedRequest(f"{count} tags in {self.end - self.position} bytes")
        for _ in range(count):
            self.read_uvarint()
            self.skip(self.read_uvarint())
        return count

    def _text(self, length: int) -> str | None:
        if length < 0:
            if length == -1:
                return None
            raise MalformedRequest(f"string length {length} before byte {self.position}")
        start = self.position
        after = start + length
        if after > self.end:
            raise self._truncated(length)
        self.position = after
        try:
            return str(self._buffer[start:after], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"string at byte {start} is not UTF-8: {error}") from None

    def _long_uvarint(self) -> int:
        value = 0
        for index in range(UVARINT_BYTES_MAX):
            position = self.position + index
            if position >= self.end:
                raise self._truncated(index + 1)
            byte = self._buffer[position]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        if byte >= 0x80 or value >= 1 << 32:
            raise MalformedRequest(f"varint at byte {self.position} needs more than 32 bits")
        self.position = position + 1
        return value

    def _truncated(self, wanted: int) -> MalformedRequest:
        left = self.end - self.position
        return MalformedRequest(f"field of {wanted} bytes, but the frame has only {left} left")


@lru_cache(maxsize=1024)  # consumers send the same topic ids in every fetch
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)
