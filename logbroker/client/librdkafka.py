"""Consumers of librdkafka without a group, their headers, and the errors that they log."""

import logging
import re
import time
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from logbroker.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)

COORDINATOR_ERRORS: Final = frozenset(
    (KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.GROUP_AUTHORIZATION_FAILED)
)
"""Errors to ignore: librdkafka requires a group id and looks for its coordinator all the same."""


def make_consumer(settings: dict[str, Any]) -> Consumer:
    """Create a consumer with no partitions assigned; `settings` are librdkafka's.

    Raises:
        ConfigurationError: librdkafka rejects the settings.
    """
    try:
        return Consumer(settings, logger=_log)
    except KafkaException as error:
        raise ConfigurationError(f"client_settings: {error.args[0].str()}") from None


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


AGAIN_AFTER_S: Final = 60.0

_CIRCUMSTANCES: Final = re.compile(r" \(after \d+ms in state [^)]*\)")

_REASONS_MAX: Final = 100


class RepeatFilter:
    """Which reasons are news: each is so once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}

    def news(self, reason: str) -> str | None:
        """The reason without what differs from time to time; none if it is no news."""
        reason = _CIRCUMSTANCES.sub("", reason)
        now_s = self._clock()
        if now_s - self._told_s.get(reason, -AGAIN_AFTER_S) < AGAIN_AFTER_S:
            return None
        if len(self._told_s) >= _REASONS_MAX:
            self._told_s.clear()
        self._told_s[reason] = now_s
        return reason


class ErrorReporter:
    """Tells each reason once a minute; `note` is an `error_cb` of any number of clients."""

    def __init__(
        self, tell: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._reasons = RepeatFilter(clock)

    def note(self, error: KafkaError) -> None:
        """Tell what a broker is accused of; that all of them are away says nothing more."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  its public name
            return
        reason = self._reasons.news(error.str())
        if reason is not None:
            self._tell(reason)
