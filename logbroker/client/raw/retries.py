"""What may go well the next time, and how long to go on trying."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from logbroker.client.errors import BrokersUnavailable
from logbroker.client.raw.parsing.errors import AttemptFailed

_log: Final = logging.getLogger(__name__)
T = TypeVar("T")

TOLD_AFTER_S: Final = 3.0
"""What fails for so long is told of: until then it may be a leader that moves."""


class RetryTimer:
    """The time that is left for one thing, and the pauses between the attempts at it."""

    def __init__(self, what: str, timeout_s: float, backoff_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._end_s = time.monotonic() + timeout_s
        self._told = False

    @property
    def left_s(self) -> float:
        """Seconds; none is left at 0."""
        return max(0.0, self._end_s - time.monotonic())

    def pause(self, failure: AttemptFailed) -> None:
        """Wait before the next attempt.

        Raises:
            BrokersUnavailable: there will be none, since the time is over.
        """
        if self.left_s <= self._backoff_s:
            raise BrokersUnavailable(
                f"{self._what} failed for {self._timeout_s:g} s; at last: {failure}"
            ) from failure
        if not self._told and self._timeout_s - self.left_s >= TOLD_AFTER_S:
            self._told = True
            _log.warning(
                "%s fails, and is tried for %.0f s more: %s", self._what, self.left_s, failure
            )
        time.sleep(self._backoff_s)


def retry(patience: RetryTimer, attempt: Callable[[], T]) -> T:
    """What an attempt gives, which is repeated while it fails and time is left.

    Raises:
        BrokersUnavailable: it failed until the time was over.
    """
    while True:
        try:
            return attempt()
        except AttemptFailed as failure:
            patience.pause(failure)
