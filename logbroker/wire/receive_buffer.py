"""The bytes of one connection between the socket and the decoders, without a copy.

A frame is an int32 size and so many bytes (Kafka protocol guide, "Protocol Primitives").
"""

import struct
from typing import Final

from logbroker.errors import FrameTooLarge

INITIAL_BYTES: Final = 16 * 1024
"""Enough for most clients; four thousand quiet connections take 64 MB."""

READ_BYTES_MAX: Final = 512 * 1024
"""Reads that fill the buffer let it grow up to this; more gains nothing and leaves the cache."""

KEPT_BYTES_MAX: Final = 2 * 2**20
"""A buffer that grew for one frame is kept up to this, so batches of 1 MB do not regrow it."""

QUIET_TURNS: Final = 64
"""After so many turns that would have fit the initial size, the buffer shrinks back to it."""

HEADER_BYTES_MIN: Final = 10
"""Fixed fields of a request header and a null client id."""

GROWTH: Final = 4

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = _SIZE.size


class ReceiveBuffer:
    """One reusable piece of memory: read into `space`, take frames, handle them, `compact`.

    Ranges from `take_frames` and views from `view` hold until `compact`. Memory follows the
    bytes that came, not the sizes that were announced: it is never more than eight times
    what has been received and not taken, or `READ_BYTES_MAX`.
    """

    __slots__ = ("_end", "_frame_bytes_max", "_initial_bytes", "_quiet_turns", "_start", "_view")

    def __init__(self, *, frame_bytes_max: int, initial_bytes: int = INITIAL_BYTES) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._initial_bytes = initial_bytes
        self._view = memoryview(bytearray(initial_bytes))
        self._start = 0
        self._end = 0
        self._quiet_turns = 0

    def __len__(self) -> int:
        """Bytes of memory held."""
        return len(self._view)

    def space(self) -> memoryview:
        """Where the next bytes go; never empty after `compact`."""
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes were written to `space`."""
        self._end += count

    def view(self) -> memoryview:
        """The whole buffer, writable; ranges of frames index it."""
        return self._view

    def take_frames(self) -> list[tuple[int, int]]:
        """(start, end) of each whole frame not taken yet, without its size.

        Raises:
            FrameTooLarge: a size is above `frame_bytes_max` or below that of a header.
        """
        view, position, end = self._view, self._start, self._end
        size_of = _SIZE.unpack_from
        frames = []
        while end - position >= _SIZE_BYTES:
            (size,) = size_of(view, position)
            if not HEADER_BYTES_MIN <= size <= self._frame_bytes_max:
                raise FrameTooLarge(
                    f"frame of {size} bytes; allowed is {HEADER_BYTES_MIN} "
                    f"to {self._frame_bytes_max}"
                )
            start = position + _SIZE_BYTES
            if start + size > end:
                break
            position = start + size
            frames.append((start, position))
        self._start = position
        return frames

    def give_back(self, start: int) -> None:
        """The frame that begins at `start`, and all behind it, are not taken after all."""
        self._start = start - _SIZE_BYTES

    def compact(self) -> None:
        """Forget taken frames: what is left moves to the front, and the memory to its new size.

        The turn's end calls this, when nobody reads the taken frames any more.
        """
        rest = self._view[self._start : self._end]
        size = self._next_size(len(rest))
        if size != len(self._view):
            self._view = memoryview(bytearray(size))
            self._quiet_turns = 0
        if len(rest) and (self._start or rest.obj is not self._view.obj):
            self._view[: len(rest)] = rest
        self._start = 0
        self._end = len(rest)

    def _next_size(self, rest_bytes: int) -> int:
        size = len(self._view)
        frame_bytes = self._frame_bytes(rest_bytes)
        if frame_bytes > size:
            # Only what has really come makes room for more, or a size prefix alone would.
            return min(frame_bytes, GROWTH * size) if rest_bytes > size // 2 else size
        if self._end == size and size < READ_BYTES_MAX:
            return min(GROWTH * size, READ_BYTES_MAX)
        needed_bytes = max(frame_bytes, rest_bytes)
        if size > KEPT_BYTES_MAX and needed_bytes <= READ_BYTES_MAX:
            return READ_BYTES_MAX
        return self._quiet_size(needed_bytes)

    def _quiet_size(self, needed_bytes: int) -> int:
        size = len(self._view)
        if size == self._initial_bytes or max(self._end, needed_bytes) > self._initial_bytes:
            self._quiet_turns = 0
            return size
        self._quiet_turns += 1
        return self._initial_bytes if self._quiet_turns >= QUIET_TURNS else size

    def _frame_bytes(self, rest_bytes: int) -> int:
        """Bytes of the partial frame once it is whole; 0 while not even its size is known."""
        if rest_bytes < _SIZE_BYTES:
            return 0
        (size,) = _SIZE.unpack_from(self._view, self._start)
        return int(_SIZE_BYTES + size)
