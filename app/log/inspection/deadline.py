"""How long a look into the log may take altogether."""

import time
from typing import Final

_LEAST_S: Final = 0.05
"""The client takes no timeout of nothing; what is over time waits no longer than this."""


class Deadline:
    """A moment that is `seconds` away when it is made."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; never quite none."""
        return max(_LEAST_S, self._end_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._end_s
