"""The receive buffer of one connection, from which decoders read without a copy.

A frame is an int32 size followed by that many bytes (Kafka protocol guide, "Protocol Primitives").
"""

import struct
from typing import Final

from logbroker.errors import FrameTooLarge
from logbroker.wire.apis import ApiKey
from logbroker.wire.memory_budget import MemoryBudget

INITIAL_BYTES: Final = 16 * 1024
"""Enough for most clients; four thousand idle connections take 64 MB."""

READ_BYTES_MAX: Final = 512 * 1024
"""The buffer grows up to this size if reads fill it; more is not faster and exceeds the cache."""

KEPT_BYTES_MAX: Final = 2 * 2**20
"""A buffer that grew for one frame is kept up to this size, so 1 MB batches do not regrow it."""

SMALL_TURNS_MAX: Final = 64
"""After this many consecutive turns that fit the initial size, the buffer shrinks to it."""

HEADER_BYTES_MIN: Final = 10
"""The fixed fields of a request header and a null client id."""

OTHER_BYTES_MAX: Final = 2**20 + 64 * 1024
"""The limit of a frame of every API but Produce: a body of 1 MiB and the longest header."""

GROWTH: Final = 4

_PRODUCE: Final = int(ApiKey.PRODUCE)

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = _SIZE.size
_API_KEY: Final = struct.Struct(">h")


class ReceiveBuffer:
    """A reusable buffer: receive into `free_space`, handle `pop_frames`, then `compact`.

    Ranges from `pop_frames` and views from `view` are valid until `compact`. The memory depends
    on the bytes received, not on the sizes announced: it is at most eight times the unhandled
    bytes, or `READ_BYTES_MAX`. What exceeds the initial size comes from `budget`; while that has
    too little for the next frame, the buffer is starved: full, and it must not be received into.
    """

    __slots__ = (
        "_budget",
        "_end",
        "_frame_bytes_max",
        "_frame_bytes_min",
        "_initial_bytes",
        "_other_bytes_max",
        "_small_turns",
        "_start",
        "_view",
        "is_starved",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int,
        budget: MemoryBudget,
        initial_bytes: int = INITIAL_BYTES,
    ) -> None:
        self.is_starved = False
        self._budget = budget
        self.limit_frames(HEADER_BYTES_MIN, frame_bytes_max)
        self._initial_bytes = initial_bytes
        self._view = memoryview(bytearray(initial_bytes))
        self._start = 0
        self._end = 0
        self._small_turns = 0

    def __len__(self) -> int:
        """Bytes of memory held."""
        return len(self._view)

    @property
    def has_grown(self) -> bool:
        """Whether the buffer holds memory of the budget."""
        return len(self._view) > self._initial_bytes

    def limit_frames(self, bytes_min: int, bytes_max: int) -> None:
        """Allow sizes in these bounds, both included, for frames that are not returned yet."""
        self._frame_bytes_min = bytes_min
        self._frame_bytes_max = bytes_max
        self._other_bytes_max = min(bytes_max, OTHER_BYTES_MAX)

    def free_space(self) -> memoryview:
        """Return the memory for the next bytes; never empty after `compact`, unless starved."""
        return self._view[self._end :]

    def add_received(self, count: int) -> None:
        """Record that `count` bytes were written to `free_space`."""
        self._end += count

    def view(self) -> memoryview:
        """Return the whole buffer, writable; the ranges of frames index it."""
        return self._view

    def pop_frames(self) -> list[tuple[int, int]]:
        """Return (start, end), without the size prefix, of each whole frame not returned before.

        Raises:
            FrameTooLarge: a size is smaller than a header, above `frame_bytes_max`, or above
                `OTHER_BYTES_MAX` for an API other than Produce.
        """
        view, position, end = self._view, self._start, self._end
        size_of = _SIZE.unpack_from
        bytes_min, other_bytes_max = self._frame_bytes_min, self._other_bytes_max
        frames = []
        while end - position >= _SIZE_BYTES:
            (size,) = size_of(view, position)
            if not bytes_min <= size <= other_bytes_max:
                self._check_size(size, position + _SIZE_BYTES)
            start = position + _SIZE_BYTES
            if start + size > end:
                break
            position = start + size
            frames.append((start, position))
        self._start = position
        return frames

    def return_frames(self, start: int) -> None:
        """Return the frame at `start` and all later ones to the next `pop_frames`."""
        self._start = start - _SIZE_BYTES

    def compact(self) -> None:
        """Discard the handled frames, move the rest to the front and resize the memory.

        Called at the end of a turn, when no frame of the turn is read any more.
        """
        rest = self._view[self._start : self._end]
        size = self._next_size(len(rest))
        if size != len(self._view) and self._take(size - len(self._view)):
            self._view = memoryview(bytearray(size))
            self._small_turns = 0
        self.is_starved = len(rest) == len(self._view)
        if len(rest) and (self._start or rest.obj is not self._view.obj):
            self._view[: len(rest)] = rest
        self._start = 0
        self._end = len(rest)

    def release(self) -> None:
        """Give the memory back to the budget, because nothing more is received."""
        self._take(self._initial_bytes - len(self._view))
        self._view = memoryview(b"")
        self._start = self._end = 0
        self._initial_bytes = 0

    def _take(self, growth: int) -> bool:
        """Take or give back memory; returns whether the buffer may change its size."""
        if growth > 0:
            return self._budget.take(growth)
        self._budget.give_back(-growth)
        return True

    def _check_size(self, size: int, start: int) -> None:
        """Check a size that not every API may have, once the first bytes of the frame are there.

        Raises:
            FrameTooLarge: the size is not allowed for the API of the frame.
        """
        bytes_max = self._frame_bytes_max
        if self._frame_bytes_min <= size <= bytes_max:
            if self._end - start < _API_KEY.size:
                return
            (api_key,) = _API_KEY.unpack_from(self._view, start)
            if api_key == _PRODUCE:
                return
            bytes_max = self._other_bytes_max
        raise FrameTooLarge(
            f"frame of {size} bytes; allowed is {self._frame_bytes_min} to {bytes_max}"
        )

    def _next_size(self, rest_bytes: int) -> int:
        size = len(self._view)
        frame_bytes = self._frame_bytes(rest_bytes)
        if frame_bytes > size:
            # Only received bytes let the buffer grow; a size prefix alone must not.
            return min(frame_bytes, GROWTH * size) if rest_bytes > size // 2 else size
        if self._end == size and size < READ_BYTES_MAX:
            return min(GROWTH * size, READ_BYTES_MAX)
        needed_bytes = max(frame_bytes, rest_bytes)
        if size > KEPT_BYTES_MAX and needed_bytes <= READ_BYTES_MAX:
            return READ_BYTES_MAX
        return self._shrunk_size(needed_bytes)

    def _shrunk_size(self, needed_bytes: int) -> int:
        size = len(self._view)
        if size == self._initial_bytes or max(self._end, needed_bytes) > self._initial_bytes:
            self._small_turns = 0
            return size
        self._small_turns += 1
        return self._initial_bytes if self._small_turns >= SMALL_TURNS_MAX else size

    def _frame_bytes(self, rest_bytes: int) -> int:
        """Return the full size of the partial frame; 0 while its size is not received."""
        if rest_bytes < _SIZE_BYTES:
            return 0
        (size,) = _SIZE.unpack_from(self._view, self._start)
        return int(_SIZE_BYTES + size)
