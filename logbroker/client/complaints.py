"""What Kafka clients complain of: why they reach no broker, which their calls do not tell.

A call that waits for a broker ends with "transport failure", whether nobody listens there, a
certificate is not trusted or a password is wrong. The reason comes beside it, to the callback of
errors, when the client is polled, and then several times a second.
"""

import re
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError

AGAIN_AFTER_S: Final = 60.0

_CIRCUMSTANCES: Final = re.compile(r" \(after \d+ms in state [^)]*\)")

_REASONS_MAX: Final = 100


class Reasons:
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


class Complaints:
    """Tells each reason once a minute; `note` is an `error_cb` of any number of clients."""

    def __init__(
        self, tell: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell = tell
        self._reasons = Reasons(clock)

    def note(self, error: KafkaError) -> None:
        """Tell what a broker is accused of; that all of them are away says nothing more."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  its public name
            return
        reason = self._reasons.news(error.str())
        if reason is not None:
            self._tell(reason)
