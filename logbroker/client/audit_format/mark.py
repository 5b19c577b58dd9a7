"""The mark that an audited producer puts on each message, so that consumers can count it.

It is the value of the header `audit`, in ASCII: `PRODUCER:WINDOW:SEQUENCE`, such as
`api-1/4f2a9c:1763712000000:17`. PRODUCER is the server's name and an id of the run. WINDOW is the
start of the window of the message's time, in ms since 1970. SEQUENCE numbers the messages of this
producer, topic and window, from 0.

Source: the 2011 paper, section 5: each message carries the timestamp and the server name when it
is generated.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

AUDIT_TOPIC: Final = "audit"
"""The topic to which producers and consumers report their counts."""

AUDIT_HEADER: Final = "audit"
SERVER_HEADER: Final = "server"

PRODUCER_BYTES_MAX: Final = 300
"""A header with a longer producer name is not a mark."""

SEQUENCE_MAX: Final = 2**24 - 1
"""A producer that sends more in one window continues under a new name, which bounds the sets."""

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, the last one that RFC 3339 can express."""


class Mark(NamedTuple):
    """The producer of a message, its window, and its number in that window."""

    producer: str
    window_ms: int
    sequence: int


class MarkSpan(NamedTuple):
    """The marks of one producer and window with the sequences in [start, end)."""

    producer: str
    window_ms: int
    start: int
    end: int


def encode_marks(span: MarkSpan) -> list[bytes]:
    """Return the header values of all marks of a span, in order."""
    place = f"{span.producer}:{span.window_ms}:".encode()
    return [b"%b%d" % (place, sequence) for sequence in range(span.start, span.end)]


def parse_mark(header: bytes | str | None) -> Mark | None:
    """Return the mark of a header; None without a header or a valid mark."""
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
    """Return the value of the first header `audit`, if there is one."""
    for name, value in headers or ():
        if name == AUDIT_HEADER:
            return value if isinstance(value, bytes) else None
    return None


def _number(digits: bytes, number_max: int) -> int | None:
    """Parse a decimal number; return None if it is invalid or above `number_max`."""
    if not digits.isdigit() or len(digits) > len(str(number_max)):
        return None
    number = int(digits)
    return number if number <= number_max else None
