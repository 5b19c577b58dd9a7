"""Many buffers to one place of a file, in as few calls as pay off."""

import os
from collections.abc import Sequence
from typing import Final

from logbroker.records.batch import Buffer

IOV_MAX: Final = 1024
"""The most buffers that one `pwritev` takes on Linux."""

JOINED_BYTES_MAX: Final = 1024
"""Below this mean size copying the buffers together is cheaper than describing each to the
kernel: 102 us against 121 us for a thousand buffers of 270 bytes."""


def write_all(descriptor: int, buffers: Sequence[Buffer], position: int, size: int) -> None:
    """Write all `buffers`, together `size` bytes, at `position` of a file.

    Raises:
        OSError: the disk took less; how much of it lies in the file is not said.
    """
    if size < len(buffers) * JOINED_BYTES_MAX:
        _write_rest(descriptor, memoryview(b"".join(buffers)), position)
        return
    for start in range(0, len(buffers), IOV_MAX):
        position = _write_vector(descriptor, buffers[start : start + IOV_MAX], position)


def _write_vector(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write at most `IOV_MAX` buffers; the position behind them."""
    size = sum(map(len, buffers))
    taken = os.pwritev(descriptor, buffers, position)
    if taken < size:
        # A short write tells no reason; asking for the rest brings it, or succeeds.
        _write_rest(descriptor, memoryview(b"".join(buffers))[taken:], position + taken)
    return position + size


def _write_rest(descriptor: int, rest: memoryview, position: int) -> None:
    while rest:
        taken = os.pwrite(descriptor, rest, position)
        rest = rest[taken:]
        position += taken
