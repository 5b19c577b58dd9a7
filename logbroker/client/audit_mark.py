"""The mark that an audited producer puts on each message, so that consumers can count.

It is the value of the header `audit`, in ASCII: `PRODUCER:WINDOW:SEQUENCE`, such as
`api-1/4f2a9c:1763712000000:17`. PRODUCER is the server's name and what tells one run of it from
another; WINDOW is where the window of the message's time begins, in ms since 1970; SEQUENCE counts
the messages that this producer has sent to this topic with times in this window, from 0 on.

Source: the 2011 paper, section 5: each message carries the timestamp and the server name when it
is generated.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

AUDIT_TOPIC: Final = "audit"
"""Where producers and consumers tell what they counted."""

AUDIT_HEADER: Final = "audit"
SERVER_HEADER: Final = "server"

PRODUCER_BYTES_MAX: Final = 300
"""A longer name is no mark of ours, but a stranger's."""

SEQUENCE_MAX: Final = 2**24 - 1
"""A producer that sends more in one window goes on under another name: sets stay small."""

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, the last one that a time in text can tell."""


class Mark(NamedTuple):
    """Who sent a message, in which window of time, as which of its messages."""

    producer: str
    window_ms: int
    sequence: int


class MarkSpan(NamedTuple):
    """Marks of one producer and window with the sequences in [start, end)."""

    producer: str
    window_ms: int
    start: int
    end: int


def encode_mark(mark: Mark) -> bytes:
    """The header's value."""
    return f"{mark.producer}:{mark.window_ms}:{mark.sequence}".encode()


def encode_marks(span: MarkSpan) -> list[bytes]:
    """The header's values for all marks of a span, in order."""
    place = f"{span.producer}:{span.window_ms}:".encode()
    return [b"%b%d" % (place, sequence) for sequence in range(span.start, span.end)]


def parse_mark(header: bytes | str | None) -> Mark | None:
    """The mark of a header; None where there is none, or none of ours."""
    if not isinstance(header, bytes):
        return None
    place, _, sequence = header.rpartition(b":")
    producer, _, window = place.rpartition(b":")
    if not 0 < len(producer) <= PRODUCER_BYTES_MAX:
        return None
    window_ms, number = _number(window, TIME_MS_MAX), _number(sequence, SEQUENCE_MAX)
    if window_ms is None or number is None:
        return None
    try:
        return Mark(producer.decode(), window_ms, number)
    except UnicodeDecodeError:
        return None


def find_mark_header(headers: Iterable[tuple[str, bytes | str | None]] | None) -> bytes | None:
    """The value of the header that has the mark, if there is one; the first of several."""
    for name, value in headers or ():
        if name == AUDIT_HEADER:
            return value if isinstance(value, bytes) else None
    return None


def _number(digits: bytes, number_max: int) -> int | None:
    """A number in decimal; longer ones than the largest are not even read."""
    if not digits.isdigit() or len(digits) > len(str(number_max)):
        return None
    number = int(digits)
    return number if number <= number_max else None
