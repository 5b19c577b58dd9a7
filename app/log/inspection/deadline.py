"""The time limit of an inspection."""

import time
from typing import Final

_LEAST_S: Final = 0.05
"""The client rejects a timeout of 0; what is late waits no longer than this."""


class Deadline:
    """A moment `seconds` after its creation."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, and at least a few milliseconds."""
        return max(_LEAST_S, self._end_s - time.monotonic())

    @property
    def request_timeout_s(self) -> float:
        """The timeout of one request: half of the time that is left.

        The client reports a hanging broker only after the timeout, and then there has to be time
        for the answers of others, and for the next request.
        """
        return self.left_s / 2

    @property
    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._end_s
