"""What an error code of a broker means for who reads."""

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
    """Something that other metadata, another connection or some time may mend."""


class ConnectionFailed(AttemptFailed):
    """A connection was not made, was lost, or brought what makes no sense."""


def error_for_code(what: str, code: int) -> ClientError | AttemptFailed:
    """The error for a code that is not NONE; an AttemptFailed where trying again makes sense."""
    text = f"{what}: {name_of(code)}"
    if code in _NOT_AUTHORIZED:
        return NotAuthorized(text)
    if code == _INVALID_TOPIC:
        return UnknownTopic(text)
    # A broker that stumbles over something of its own may do better the next time.
    if code == _UNKNOWN_SERVER_ERROR or for_code(code).retriable:
        return AttemptFailed(text)
    return FetchFailed(text)
