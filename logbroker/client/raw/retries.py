"""Retries of failed attempts until a timeout."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from logbroker.client.errors import BrokersUnavailable
from logbroker.client.raw.parsing.errors import AttemptFailed

_log: Final = logging.getLogger(__name__)
T = TypeVar("T")

WARN_AFTER_S: Final = 3.0
"""How long attempts fail before a warning; until then a leader may be moving."""


class RetryTimer:
    """The remaining time for one operation, and the backoff between its attempts."""

    def __init__(self, what: str, timeout_s: float, backoff_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._end_s = time.monotonic() + timeout_s
        self._has_warned = False

    @property
    def remaining_s(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self._end_s - time.monotonic())

    def wait_or_raise(self, failure: AttemptFailed) -> None:
        """Wait before the next attempt.

        Raises:
            BrokersUnavailable: the timeout has passed.
        """
        if self.remaining_s <= self._backoff_s:
            raise BrokersUnavailable(
                f"{self._what} failed for {self._timeout_s:g} s; last error: {failure}"
            ) from failure
        if not self._has_warned and self._timeout_s - self.remaining_s >= WARN_AFTER_S:
            self._has_warned = True
            _log.warning(
                "%s fails, and is tried for %.0f s more: %s", self._what, self.remaining_s, failure
            )
        time.sleep(self._backoff_s)


def retry(timer: RetryTimer, attempt: Callable[[], T]) -> T:
    """Return the result of `attempt`, which is repeated while it fails and time remains.

    Raises:
        BrokersUnavailable: it failed until the timeout.
    """
    while True:
        try:
            return attempt()
        except AttemptFailed as failure:
            timer.wait_or_raise(failure)
