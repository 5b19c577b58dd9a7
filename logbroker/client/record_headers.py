"""The headers of a record as the Kafka client has them, whoever wrote it."""

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Final

import confluent_kafka

# Not `message.headers()`: for a name that is not UTF-8 the client returns a list with a hole in it
# and an exception besides, which Python notices by this way alone; its own fast way to call a
# method goes on with the list, and ends the process at the hole.
_headers: Final[Callable[[object], Any]] = methodcaller("headers")


def readable_headers(
    message: "confluent_kafka.Message",
) -> Sequence[tuple[str, bytes | None]] | None:
    """The headers in their order; None where the name of one is not UTF-8.

    The protocol wants names in UTF-8 and no broker looks at them, so a stranger's may be anything.
    Whoever reads a log must get past such a record.
    """
    try:
        headers: Sequence[tuple[str, bytes | None]] = _headers(message) or ()
    except (UnicodeDecodeError, SystemError):
        return None
    return headers
