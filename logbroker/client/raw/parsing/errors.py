"""The errors of single attempts, and the meaning of broker error codes for a reader."""

from typing import Final

from kafka.errors import for_code

from logbroker.client.errors import ClientError, FetchFailed, NotAuthorized, UnknownTopic
from logbroker.wire.error_codes import name_of

OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_INVALID_TOPIC: Final = 17
_NOT_AUTHORIZED: Final = frozenset((29, 31))
_UNKNOWN_SERVER_ERROR: Final = -1


class AttemptFailed(Exception):
    """An attempt failed that may succeed later, with new metadata or on another connection."""


class ConnectionFailed(AttemptFailed):
    """A connection failed, was lost, or received malformed data."""


def error_for_code(what: str, code: int) -> ClientError | AttemptFailed:
    """Return the exception for an error code; an AttemptFailed if it is retriable."""
    text = f"{what}: {name_of(code)}"
    if code in _NOT_AUTHORIZED:
        return NotAuthorized(text)
    if code == _INVALID_TOPIC:
        return UnknownTopic(text)
    # An internal error of the broker may not happen again.
    if code == _UNKNOWN_SERVER_ERROR or for_code(code).retriable:
        return AttemptFailed(text)
    return FetchFailed(text)
