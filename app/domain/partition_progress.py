"""Progress of the deliverer in one partition, and its encoding in one committed offset.

Events are settled in any order. An event that waits four minutes for its last attempt must not
hold back the commit, because a restart would resend everything after it; nor may it be lost. So a
commit holds the position, below which all records were read, and metadata that lists the unsettled
offsets below it. Kafka stores it as the metadata of the committed offset.

The metadata is "r1:" and base64 (RFC 4648, section 5, without padding) of unsigned LEB128 numbers:
the distance from the first unsettled offset to the position; then, from that offset on, the lengths
of alternating runs of unsettled and settled offsets. The last settled run is omitted. If every
offset is settled, the metadata is empty.
"""

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from app.domain.leb128 import IncompleteNumber, decode_numbers, encode_number

METADATA_CHARS_MAX: Final = 4_096
"""Kafka's default of `offset.metadata.max.bytes`."""

_PREFIX: Final = "r1:"
_BYTES_MAX: Final = (METADATA_CHARS_MAX - len(_PREFIX)) * 3 // 4


class PartitionCommit(NamedTuple):
    """A position to resume at, and metadata with the unsettled offsets below it."""

    position: int
    metadata: str


class InvalidCommitMetadata(ValueError):
    """Metadata that this module did not write."""


class PartitionProgress:
    """The settled and unsettled offsets of one partition. Offsets are opened in rising order.

    After a resume, the unsettled offsets of the commit are read again; settled ones are skipped.
    """

    def __init__(self, position: int, unsettled: Iterable[int] = ()) -> None:
        self._position = position
        self._open = dict.fromkeys(unsettled)
        self._unread = set(self._open)

    @property
    def unsettled_count(self) -> int:
        """The number of unsettled offsets."""
        return len(self._open)

    @property
    def read_from(self) -> int:
        """The offset to read from."""
        return next(iter(self._open), self._position)

    def open(self, offset: int) -> bool:
        """Add a record that was read; False if it was settled or read before."""
        if offset < self._position:
            if offset not in self._unread:
                return False
            self._unread.remove(offset)
            return True
        self._position = offset + 1
        self._open[offset] = None
        return True

    def settle(self, offset: int) -> None:
        """Mark a record as settled."""
        self._open.pop(offset, None)

    def settle_deleted(self, position: int) -> None:
        """Settle the unread offsets below `position`: the log deleted their records."""
        deleted = [offset for offset in self._unread if offset < position]
        for offset in deleted:
            self._unread.remove(offset)
            self.settle(offset)

    def skip_to(self, position: int) -> None:
        """Settle the unread offsets below `position`: their records cannot be read."""
        self.settle_deleted(position)
        self._position = max(self._position, position)

    def commit(self) -> PartitionCommit:
        """The commit to store. It lists every unsettled offset below its position.

        If the metadata would be too long, the position is lowered. A crash then repeats the
        deliveries that were settled above it.
        """
        if not self._open:
            return PartitionCommit(self._position, "")
        return _encode(self._position, iter(self._open))


def resume(commit: PartitionCommit) -> PartitionProgress:
    """The progress that a commit describes.

    Raises:
        InvalidCommitMetadata: this module did not write the metadata.
    """
    return PartitionProgress(commit.position, _decode(commit))


def unsettled_offsets(commit: PartitionCommit) -> tuple[int, ...]:
    """The unsettled offsets below the position of a commit, in rising order.

    Raises:
        InvalidCommitMetadata: this module did not write the metadata.
    """
    return tuple(_decode(commit))


def _encode(position: int, offsets: Iterator[int]) -> PartitionCommit:
    """The longest commit whose metadata fits; `offsets` rise and lie below `position`."""
    runs = _runs(offsets)
    first, end = next(runs)
    # The distance to the position is the first number, and shrinks if the position is lowered.
    room = _BYTES_MAX - len(encode_number(position - first))
    content = bytearray(encode_number(end - first))
    for start, next_end in runs:
        piece = encode_number(start - end) + encode_number(next_end - start)
        if len(content) + len(piece) > room:
            # The metadata describes all offsets below this one.
            position = start
            break
        content += piece
        end = next_end
    text = urlsafe_b64encode(encode_number(position - first) + bytes(content)).decode().rstrip("=")
    return PartitionCommit(position, _PREFIX + text)


def _runs(offsets: Iterator[int]) -> Iterator[tuple[int, int]]:
    """The ranges `[start, end)` of consecutive offsets."""
    start = end = next(offsets)
    end += 1
    for offset in offsets:
        if offset != end:
            yield start, end
            start = offset
        end = offset + 1
    yield start, end


def _decode(commit: PartitionCommit) -> list[int]:
    if not commit.metadata:
        return []
    if not commit.metadata.startswith(_PREFIX):
        raise InvalidCommitMetadata(
            f"metadata begins with {commit.metadata[:10]!r}; allowed: {_PREFIX!r}"
        )
    numbers = _numbers(_bytes(commit.metadata.removeprefix(_PREFIX)))
    offsets: list[int] = []
    offset = commit.position - next(numbers, 0)
    is_open = True
    for length in numbers:
        if not 0 <= offset <= offset + length <= commit.position:
            raise InvalidCommitMetadata(f"metadata lists offsets outside [0, {commit.position})")
        if is_open:
            offsets.extend(range(offset, offset + length))
        offset += length
        is_open = not is_open
    return offsets


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCommitMetadata(f"metadata is not base64: {error}") from None


def _numbers(content: bytes) -> Iterator[int]:
    try:
        yield from decode_numbers(iter(content))
    except IncompleteNumber:
        raise InvalidCommitMetadata("metadata ends inside a number") from None
