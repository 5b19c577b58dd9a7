"""What a client complains of: why it reaches no broker, which its calls do not tell.

A call that waits for a broker ends with "transport failure", whether nobody listens there, a
certificate is not trusted or a password is wrong. The reason comes beside it, to the callback of
errors, when the client is polled, and then several times a second.
"""

import logging
import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

_log: Final = logging.getLogger(__name__)

AGAIN_AFTER_S: Final = 60.0

_CLIENT_AND_THREAD: Final = re.compile(r"FAIL \[[^\]]*\] \[thrd:[^\]]*\]: ")

_CIRCUMSTANCES: Final = re.compile(r" \(after \d+ms in state [^)]*\)")

_REASONS_MAX: Final = 100


class Complaints:
    """Logs each reason once a minute; `note` is an `error_cb` of any number of clients.

    The log is for operators: it names addresses, which errors must not tell to developers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}

    def note(self, error: KafkaError) -> None:
        """Log what a broker is accused of; that all of them are away says nothing more."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  its public name
            return
        reason = _CIRCUMSTANCES.sub("", error.str())
        if self._is_news(reason):
            _log.warning("log client: %s", reason)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line of a client's own is to be written: a filter of its logger."""
        line = record.getMessage()
        is_complaint = _CLIENT_AND_THREAD.match(line)
        if is_complaint is None:
            return True
        return self._is_news(_CIRCUMSTANCES.sub("", line[is_complaint.end() :]))

    def _is_news(self, reason: str) -> bool:
        now_s = self._clock()
        if now_s - self._told_s.get(reason, -AGAIN_AFTER_S) < AGAIN_AFTER_S:
            return False
        if len(self._told_s) >= _REASONS_MAX:
            self._told_s.clear()
        self._told_s[reason] = now_s
        return True


COMPLAINTS: Final = Complaints()
"""Of all clients of this process: some live for one call alone."""

CLIENT_LOG: Final = logging.getLogger("app.log.librdkafka")
"""Where clients write lines of their own; each attempt to connect in vain would leave one."""

CLIENT_LOG.addFilter(Complaints())
