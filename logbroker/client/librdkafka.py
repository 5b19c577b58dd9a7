"""Consumers of librdkafka without a group, their headers, and the errors that clients report.

A call that waits for a broker fails with "transport failure", whatever the cause: a closed port, an
untrusted certificate or a wrong password. The cause is reported only to the error callback, several
times per second.
"""

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


# Not `message.headers()`: for a name that is not UTF-8 the client returns a list with a missing
# item and also sets an exception. Only this call checks the exception. Python's fast method call
# uses the list and crashes at the missing item.
_headers: Final[Callable[[object], Any]] = methodcaller("headers")


def readable_headers(
    message: "confluent_kafka.Message",
) -> Sequence[tuple[str, bytes | None]] | None:
    """Return the headers in order; None if the name of one is not UTF-8.

    The protocol requires UTF-8, but no broker checks it. A reader of the log must be able to skip
    such a record.
    """
    try:
        headers: Sequence[tuple[str, bytes | None]] = _headers(message) or ()
    except (UnicodeDecodeError, SystemError):
        return None
    return headers


REPEAT_AFTER_S: Final = 60.0

_CIRCUMSTANCES: Final = re.compile(r" \(after \d+ms in state [^)]*\)")

_ERRORS_MAX: Final = 100


class RepeatFilter:
    """Passes each error text once per minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reported_s: dict[str, float] = {}

    def pass_if_new(self, reason: str) -> str | None:
        """Return the text without variable parts; None if it was passed recently."""
        reason = _CIRCUMSTANCES.sub("", reason)
        now_s = self._clock()
        if now_s - self._reported_s.get(reason, -REPEAT_AFTER_S) < REPEAT_AFTER_S:
            return None
        if len(self._reported_s) >= _ERRORS_MAX:
            self._reported_s.clear()
        self._reported_s[reason] = now_s
        return reason


class ErrorReporter:
    """Reports each error once per minute, with an `error_cb` for any number of clients."""

    def __init__(
        self, report: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._filter = RepeatFilter(clock)

    def report_error(self, error: KafkaError) -> None:
        """Report a broker's error; skip "all brokers down", which adds no information."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  its public name
            return
        reason = self._filter.pass_if_new(error.str())
        if reason is not None:
            self._report(reason)
