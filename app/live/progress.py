"""How far a partition is delivered, as one commit can tell it.

Events are settled in any order: one that waits four minutes for its last attempt must neither hold
the commit back, or a restart would send all after it again, nor be forgotten by it. So a commit is
the position, below which everything was read, and its note lists the offsets below that are not
settled. Kafka keeps a note as the metadata of the committed offset.

The note is "r1:" and base64 (RFC 4648, section 5, without padding) of numbers as unsigned LEB128:
the distance from the first offset that is open to the position; then lengths of runs from there
on, of open offsets and of others in turn. The last run of others is left out. Without an open
offset there is no note.
"""

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

NOTE_CHARS_MAX: Final = 4_096
"""What brokers keep by default (`offset.metadata.max.bytes`)."""

_PREFIX: Final = "r1:"
_BYTES_MAX: Final = (NOTE_CHARS_MAX - len(_PREFIX)) * 3 // 4


class Commit(NamedTuple):
    """What is stored for a partition: where to read on, and what is open below."""

    position: int
    note: str


class NoteUnreadable(ValueError):
    """A note that no commit of ours has."""


class PartitionProgress:
    """Which offsets of one partition are settled. Offsets are opened in rising order.

    Resumed from a commit, it has the offsets that the commit left open to be read again, and
    knows those that are settled.
    """

    def __init__(self, position: int, left_open: Iterable[int] = ()) -> None:
        self._position = position
        self._resumed_at = position
        self._open = dict.fromkeys(left_open)
        self._unread = set(self._open)

    @property
    def position(self) -> int:
        """The offset below which everything was read once."""
        return self._position

    @property
    def open_count(self) -> int:
        """How many offsets are not settled."""
        return len(self._open)

    @property
    def read_from(self) -> int:
        """Where to begin to read."""
        return next(iter(self._open), self._position)

    def open(self, offset: int) -> bool:
        """Book a record that was read; False if it was settled or read before."""
        if offset < self._position:
            if offset not in self._unread:
                return False
            self._unread.remove(offset)
            return True
        self._position = offset + 1
        self._open[offset] = None
        return True

    def settle(self, offset: int) -> None:
        """Book that nothing is left to do for a record."""
        self._open.pop(offset, None)

    def read_to(self, position: int) -> None:
        """Book that records below `position` that were not opened are not there any more."""
        gone = [offset for offset in self._unread if offset < position]
        for offset in gone:
            self._unread.remove(offset)
            self.settle(offset)

    def commit(self) -> Commit:
        """What to store: it names every open offset below its position.

        The position is lowered where the note would become too long: then a crash repeats what
        was settled above it.
        """
        if not self._open:
            return Commit(self._position, "")
        return _encode(self._position, iter(self._open))


def resume(commit: Commit) -> PartitionProgress:
    """The progress that a commit tells of.

    Raises:
        NoteUnreadable: its note is not one of ours.
    """
    return PartitionProgress(commit.position, _decode(commit))


def _encode(position: int, offsets: Iterator[int]) -> Commit:
    """The longest commit whose note fits; `offsets` rise and lie below `position`."""
    runs = _runs(offsets)
    first, end = next(runs)
    # The distance to the position comes first, and changes if the position is lowered.
    room = _BYTES_MAX - len(_leb128(position - first))
    content = bytearray(_leb128(end - first))
    for start, next_end in runs:
        piece = _leb128(start - end) + _leb128(next_end - start)
        if len(content) + len(piece) > room:
            # Below this offset all is said.
            position = start
            break
        content += piece
        end = next_end
    text = urlsafe_b64encode(_leb128(position - first) + bytes(content)).decode().rstrip("=")
    return Commit(position, _PREFIX + text)


def _runs(offsets: Iterator[int]) -> Iterator[tuple[int, int]]:
    """The `[start, end)` of each stretch of offsets without a gap."""
    start = end = next(offsets)
    end += 1
    for offset in offsets:
        if offset != end:
            yield start, end
            start = offset
        end = offset + 1
    yield start, end


def _decode(commit: Commit) -> list[int]:
    if not commit.note:
        return []
    if not commit.note.startswith(_PREFIX):
        raise NoteUnreadable(f"note begins with {commit.note[:10]!r}; allowed is {_PREFIX!r}")
    numbers = _numbers(_bytes(commit.note.removeprefix(_PREFIX)))
    offsets: list[int] = []
    offset = commit.position - next(numbers, 0)
    is_open = True
    for length in numbers:
        if not 0 <= offset <= offset + length <= commit.position:
            raise NoteUnreadable(f"note tells of offsets outside [0, {commit.position})")
        if is_open:
            offsets.extend(range(offset, offset + length))
        offset += length
        is_open = not is_open
    return offsets


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise NoteUnreadable(f"note is no base64: {error}") from None


def _leb128(number: int) -> bytes:
    """Seven bits a byte, the lowest first; a set high bit says that another byte follows."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _numbers(content: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in content:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise NoteUnreadable("note ends inside a number")
